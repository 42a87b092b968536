"""What passes stand on: exact rules, attention as it lies in a graph, and rewrites that are repeated."""
