"""Runs the artifacts of a bundle: one file per backend, with one interface."""
