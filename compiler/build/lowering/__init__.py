"""Lowers one graph from capture to artefacts: runs the passes, compares with the original, and replays proofs."""
