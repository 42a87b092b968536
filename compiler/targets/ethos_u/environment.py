"""Defines the environment of Arm's toolchain: the quantiser, the lowering to TOSA, the reference model and Vela."""

from pathlib import Path

from compiler.targets.environment import Environment

ENVIRONMENT = Environment(
    name="ethos_u",
    python="3.11",
    lock=Path(__file__).with_name("requirements.lock"),
    worker=Path(__file__).with_name("worker.py"),
    licence=(
        "Vela and the TOSA tools: Apache-2.0; ExecuTorch, which has the quantiser and the lowering, PyTorch and "
        "torchao: BSD-3-Clause; ONNX Runtime: MIT"
    ),
    fetched_mb=286,
    installed_mb=1320,
    verifies="lowers graphs to TOSA, executes these in Arm's reference model, and compiles command streams with Vela",
)
"""Sizes: sum of the wheels that the lock names, and `du -sm` of the environment."""
