"""Trains models whose attention heads share keys and values by distillation from the original, before capture."""
