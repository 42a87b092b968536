"""Bundles inside servers of others: streams by the names of their callers, and a Triton model repository."""
