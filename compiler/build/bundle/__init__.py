"""Writes, compares and finishes bundles, and replays their proofs from their own files; a bundle is whole or absent."""
