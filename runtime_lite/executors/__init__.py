"""Runs the artifacts of a bundle: one file per backend, behind one contract."""
