"""Facts of inputs in, a verdict for every node out: the rule table is asked node by node."""
