"""Bundles within servers of others: streams by the callers' names, a Triton model repository, an application of Ray Serve, HTTP."""
