"""Verifies that what is built still is what was handed over: one gate per file."""
