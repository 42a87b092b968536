"""Provides rewrites that passes build on: exact simplification, shared attention heads, pruning and least squares."""
