"""Decodes nodes, whatever their spelling: operands left out, axes counted from the back."""
