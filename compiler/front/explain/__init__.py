"""Shows the padding proof of every node of a graph, as text and as a picture."""
