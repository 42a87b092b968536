"""Chooses and writes the nodes that compute in half precision: overflow, cost of rounding, the cheapest choice."""
