"""Graphs: their values, operators and sizes, the states that they hand on, and how they are run."""
