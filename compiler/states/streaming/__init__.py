"""Chooses the states of a stream with a minimum cut over the values that no later call changes."""
