"""The commands that need no recipe, the explanation of proofs for people, and the report of installed software."""
