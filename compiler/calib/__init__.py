"""Measures graphs on calibration data: arrays in, numbers out."""
