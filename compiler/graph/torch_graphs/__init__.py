"""Converts static ONNX graphs to torch modules, with one function per operator, for compilers that take these."""
