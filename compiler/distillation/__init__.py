"""Training before capture: a checkpoint whose heads share keys and values, distilled from the original."""
