"""Collects the versions of Python, Slipway and the packages that a bundle is built with."""

import importlib.metadata
import platform
from collections.abc import Iterable

import runtime_lite

TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnx-shape-inference", "onnxruntime", "numpy")


def tool_versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of the tools that a bundle is built with.

    Args:
        packages: further packages that its target needs.
    """
    names = dict.fromkeys((*TOOLS, *packages))
    own = {"python": platform.python_version(), "slipway": runtime_lite.__version__}
    return {name: importlib.metadata.version(name) for name in names} | own
