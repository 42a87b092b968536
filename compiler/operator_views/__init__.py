"""What a node does, read in one place whatever its spelling: operands left out, axes counted from the back."""
