"""Defines the format of a bundle, and reads it without trust: checks every size, hash and field before use."""
