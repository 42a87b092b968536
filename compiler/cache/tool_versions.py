"""Versions of everything a bundle is made with."""

import importlib.metadata
import platform

TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnx-shape-inference", "onnxruntime", "numpy")


def tool_versions() -> dict[str, str]:
    """Versions of what a bundle is made with."""
    return {name: importlib.metadata.version(name) for name in TOOLS} | {"python": platform.python_version()}
