"""Rewrites a graph of one row so that it computes many rows at once, by one rule per operator."""
