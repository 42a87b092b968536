"""ONNX files from outside: read with every check, brought to one opset, and refused where their size is the fault."""
