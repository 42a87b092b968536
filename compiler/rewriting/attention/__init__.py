"""Finds the heads of attention in a graph, and computes how several heads can share keys and values."""
