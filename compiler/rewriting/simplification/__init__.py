"""Implements the pass simplify: exact rewrite rules, constant folding, and merging of equal nodes."""
