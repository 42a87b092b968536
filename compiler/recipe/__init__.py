"""Reads a recipe into one frozen record; refuses, with its line, what no build can do before anything runs."""
