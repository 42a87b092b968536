"""Rewrites graphs for append caches, which hold cached frames in the order in which they came."""
