"""What simplify knows: exact rules, constants, equal nodes."""
