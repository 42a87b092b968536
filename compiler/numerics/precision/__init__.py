"""Chooses the nodes that compute in half precision, by overflow, rounding noise and speed, and rewrites the graph."""
