"""The compiler of Slipway: checkpoint and recipe in, verified bundle out."""
