"""Finds by measuring which of several ways to write a graph is fastest on the machine that builds."""
