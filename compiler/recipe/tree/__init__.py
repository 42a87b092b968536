"""Parses a recipe into values with line numbers, expands its short forms, and reports errors with their lines."""
