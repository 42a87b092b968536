"""Defines the environment of Qualcomm's toolchain: ONNX Runtime and its QNN provider with compiler and simulator."""

from pathlib import Path

from compiler.targets.environment import Environment

ENVIRONMENT = Environment(
    name="qnn",
    python="3.11",
    lock=Path(__file__).with_name("requirements.lock"),
    worker=Path(__file__).with_name("worker.py"),
    licence=(
        "ONNX Runtime and the provider: MIT; Qualcomm's libraries in it: Qualcomm AI Stack License, to develop own "
        "software with, passed on as object code inside an application only; Qualcomm_LICENSE.pdf in the package"
    ),
    fetched_mb=147,
    installed_mb=475,
    verifies="compiles contexts for each SoC and executes them in Qualcomm's simulator of the HTP",
)
"""Sizes: sum of the wheels that the lock names, and `du -sm` of the environment."""
