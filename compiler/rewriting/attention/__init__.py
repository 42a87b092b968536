"""Attention heads: where they are in a graph, which of them may share keys and values, and by which maps."""
