"""A checkpoint or an ONNX file in; its graph, its reference and the data to measure on out."""
