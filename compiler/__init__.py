"""Compiles a checkpoint and a recipe into a verified bundle."""
