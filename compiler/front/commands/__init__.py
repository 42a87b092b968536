"""The command line: its arguments, and the small tools that need no recipe."""
