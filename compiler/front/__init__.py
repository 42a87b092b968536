"""What the front door accepts: commands that need no recipe, proofs as a person sees them, and what is installed."""
