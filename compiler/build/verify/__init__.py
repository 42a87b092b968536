"""Verifies that the built graphs still compute what the original computes: one gate per file."""
