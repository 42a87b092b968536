"""Reads a recipe as values with their lines, writes short forms out, and says what is wrong in its place."""
