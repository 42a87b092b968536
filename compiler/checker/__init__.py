"""Replays certificates step by step on small tensors, and shares no code with the prover."""
