"""Captures a graph from a checkpoint or an ONNX file, runs the original as reference, and draws the data."""
