"""Writes the nodes that pad_axes adds to a graph: masks, true sizes, and lowerings of operators that need one."""
