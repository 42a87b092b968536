"""tool_versions: what a bundle says it was made with."""

import importlib.metadata

import onnxruntime
import torch

import runtime_lite
from compiler.base.cache.tool_versions import tool_versions


def test_a_target_adds_its_own() -> None:
    assert tool_versions(["onnx", "pydantic"]) == {
        **tool_versions(),
        "pydantic": importlib.metadata.version("pydantic"),
    }


def test_versions_are_those_of_the_installed_tools() -> None:
    versions = tool_versions()
    assert versions["torch"] == torch.__version__.split("+")[0] or versions["torch"] == torch.__version__
    assert versions["onnxruntime"] == onnxruntime.__version__
    assert versions["slipway"] == runtime_lite.__version__
    assert set(versions) >= {"onnx", "onnx-ir", "onnxscript", "numpy", "python"}
