"""Runs the artifacts of a bundle, with one module per backend and one interface for all of them."""
