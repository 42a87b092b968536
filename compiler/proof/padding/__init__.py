"""Writes what pad_axes adds to a graph: masks, true sizes, and the padded forms of operators that need one."""
