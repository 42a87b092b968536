"""Reads a recipe into one frozen record, and refuses impossible builds before they start, naming the recipe's line."""
