"""Reads, edits, analyses and runs graphs: their values, operators, axis sizes and states."""
