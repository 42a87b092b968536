"""Generates sequences autoregressively within the runtime: draws tokens and feeds them back, step by step."""
