"""Whether the builder of TensorRT-RTX is installed, which these tests run; `.ci/run` installs it."""

import importlib.util

import pytest

NEEDS_RTX = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs the builder of TensorRT-RTX: pip install tensorrt-rtx-cu13",
)
