"""Reads a recipe into one frozen record, and refuses early, with the line, what no build can do."""
