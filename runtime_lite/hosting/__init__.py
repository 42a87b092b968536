"""Bundles within servers of others: streams by name, a Triton model repository, a Ray application, and HTTP."""
