"""Rewrites what a graph keeps from call to call: operators move to the new frames, and other states replace the old."""
