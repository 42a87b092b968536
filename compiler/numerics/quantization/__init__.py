"""Shared parts of the passes to 8-bit numbers: layers, recordings, choices, and how they are written down."""
