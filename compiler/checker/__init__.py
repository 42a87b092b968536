"""Replays certificates step by step on small tensors, with no code of the prover."""
