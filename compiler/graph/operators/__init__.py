"""Decodes ONNX nodes into one form: attributes and absent operands filled in, axes counted from the front."""
