"""Finds and confirms the nodes that break parity, explains them, and writes a small graph that shows the error."""
