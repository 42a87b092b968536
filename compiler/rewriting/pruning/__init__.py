"""Removes channels that a graph's results depend on least, and refits the weights that read the other channels."""
