"""Reads ONNX files of unknown origin: checks their limits and content, and converts them to one opset."""
