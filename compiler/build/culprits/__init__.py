"""Finds the nodes that broke parity, confirms and explains them, and writes each as a small graph."""
