"""Bundles within servers of others: streams by the callers' names, and a Triton model repository."""
