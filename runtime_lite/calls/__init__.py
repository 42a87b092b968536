"""Executes one call of one graph, by functions of feeds, states and buckets."""
