"""Builds bundles from a recipe: captures, lowers, verifies and measures the graphs, and writes the files."""
