"""Provides code that the 8-bit passes share: finding layers, recording data, choosing grids, rewriting graphs."""
