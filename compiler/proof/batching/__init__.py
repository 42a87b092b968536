"""Rewrites a graph for one row so that it computes a whole batch of rows, with one rule per operator."""
