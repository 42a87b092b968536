"""Chooses the states of a stream: stable values, the network of states, and the cheapest cut through it."""
