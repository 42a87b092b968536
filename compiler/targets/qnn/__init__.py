"""Compiles graphs for Qualcomm's NPU (HTP) with ONNX Runtime's QNN provider, and runs them in its simulator."""
