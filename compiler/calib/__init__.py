"""Measures the values inside graphs on calibration data: ranges, magnitudes, and the noise of rounding."""
