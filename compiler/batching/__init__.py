"""One rule per operator for computing many rows at once with a graph that is written for one row."""
