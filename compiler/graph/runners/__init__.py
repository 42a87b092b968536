"""Runs a graph call by call: whole rows of any length, or streams that carry their states."""
