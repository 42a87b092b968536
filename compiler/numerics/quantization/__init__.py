"""Provides what the 8-bit passes share: they find layers, record data, choose grids, and rewrite graphs."""
