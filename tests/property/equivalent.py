"""Mutants that cannot be told from the original, and why; by the key of the mutation."""

EQUIVALENT: dict[str, str] = {}
