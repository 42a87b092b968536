"""Parses the command line, and implements the small commands that need no recipe."""
