"""Caches to which calls append: what a graph does with cached frames, which lie in the order in which they came."""
