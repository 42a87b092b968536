"""Sizes of axes as integer expressions over axis names: normal forms, growth, and inference of shapes."""
