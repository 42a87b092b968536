"""Implements the commands that need no recipe, the explanation of proofs, and the report of installed software."""
