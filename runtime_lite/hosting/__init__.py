"""Serves bundles within other servers: streams by name, a Triton model repository, a Ray application, and HTTP."""
