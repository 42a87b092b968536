"""Applies the rule table node by node: from the facts of a graph's inputs to a verdict for every node."""
