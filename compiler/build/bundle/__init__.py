"""Writes and compares bundles, adds a vendor's engines to them, and replays their proofs from their own files."""
