"""Commands of the front door: what they accept, and the small tools that need no recipe."""
