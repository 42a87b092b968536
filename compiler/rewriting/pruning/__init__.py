"""Takes channels out of a graph that few of its results depend on, and fits what reads the others anew."""
