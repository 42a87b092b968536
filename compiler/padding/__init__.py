"""What pad_axes writes into a graph: masks, true sizes, and the padded forms of operators that need one."""
