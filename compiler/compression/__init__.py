"""Trains checkpoints before capture: heads that share keys and values are distilled from the original."""
