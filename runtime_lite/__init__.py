"""Runs verified bundles: numpy and one backend, nothing of the compiler."""
