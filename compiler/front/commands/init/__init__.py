"""`build.py init`: a recipe to start from, and feeds for it, guessed from a model."""
