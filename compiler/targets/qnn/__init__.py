"""Qualcomm's NPU (HTP) through ONNX Runtime's provider QNN: contexts for a SoC, compiled and simulated here."""
