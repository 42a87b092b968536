"""Proves that padding, batching and derived steps keep a graph's results, and writes the nodes that proofs require."""
