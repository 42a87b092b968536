"""Rewrites a graph by exact rules, folds constants and merges equal nodes: the parts of the pass simplify."""
