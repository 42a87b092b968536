"""Rewrites the states of a graph: operators move to the new frames, and their results on old frames become states."""
