"""Derives the entries of values that depend on axis lengths alone."""
