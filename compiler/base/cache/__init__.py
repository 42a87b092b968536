"""Caches the results of build stages with all that they depend on: inputs, code, and the files and variables read."""
