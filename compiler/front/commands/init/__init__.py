"""Implements `build.py init`: guesses a recipe to start from, and feeds for it, from a model."""
