"""Analyses and rewrites the states that a streaming graph hands from call to call."""
