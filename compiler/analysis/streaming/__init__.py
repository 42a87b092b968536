"""What a stream has to carry: stable values, the network of states, and the cheapest cut through it."""
