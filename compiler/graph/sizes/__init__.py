"""Computes axis sizes as integer expressions over axis names: normal forms, growth and shape inference."""
