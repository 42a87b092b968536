"""A graph and what it says: its values, operators and sizes, the states that it hands on, and how it is run."""
