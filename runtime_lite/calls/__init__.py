"""One call of one graph, as pure functions of feeds, states and buckets."""
