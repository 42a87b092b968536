"""Searches for the variants that make a graph fastest, by measuring on the machine that builds."""
