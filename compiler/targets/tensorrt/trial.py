"""Builds engines with TensorRT-RTX, whose builder needs no device, and reads the types of their layers.

TensorRT-RTX is NVIDIA's TensorRT for PCs and workstations. Its parser and its compiler are of one family with those of
TensorRT itself, which nobody can have without an account; what it shows is said of it alone.
"""

import functools
import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from compiler.errors import Refused
from compiler.targets.base import TrialEngine
from compiler.targets.tensorrt import build_trial, builder
from compiler.targets.tensorrt.engine_layers import layers_of
from compiler.targets.tensorrt.rule import every_node
from compiler.targets.toolchain import Toolchain

NAME, PACKAGE = "TensorRT-RTX", "tensorrt_rtx"

VERSION = "1.7.1.116"
"""As pyproject.toml pins it: what is read of a builder's log is not documented, and may be otherwise in another."""

REQUIREMENT = f"tensorrt-rtx-cu13=={VERSION}"

CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""Compute capabilities that it builds for."""

TURING, NEXT_OF_PCS = "7.5", "8.6"

FLOAT_PRODUCTS = frozenset({"Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
"""Operators that TensorRT-RTX does not build in float32 for Turing, and TensorRT does."""

START_S, BUILD_S = 120.0, 600.0
"""Seconds to load the library, and to build one engine, which takes a few."""

BUILD_BYTES = 8 << 30
"""Memory of one build; an engine of 17 MB takes 0.4 GB."""


@functools.cache
def builder_version() -> str:
    """Start the builder in a process of its own, once per process, and return its version.

    Raises:
        SlipwayError: the builder does not start, or does not end.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-trial-") as scratch:
        out = Path(scratch) / "out"
        _toolchain(START_S).run(_request(), out)
        return (out / "version.txt").read_text(encoding="utf-8")


def built_trial(
    bundle: Path, plan: Mapping[str, Any], engine: Mapping[str, Any], capabilities: Sequence[str], why: str = ""
) -> tuple[TrialEngine, bytes]:
    """Build the engine of one graph file, in a process that may crash, hang or fill memory.

    Args:
        bundle: folder that the paths of the plan are relative to.
        plan: entry `builder` of the build plan.
        engine: one entry of `engines` of the build plan.
        capabilities: compute capabilities of the engine.
        why: reason for these capabilities, where they are unexpected.

    Returns:
        The engine's description, and the engine.

    Raises:
        Refused: the builder refuses the graph, crashes, or reaches a limit; the message names the graph file.
        ToolchainAbsent: the builder does not load.
    """
    device = f"compute capability {', '.join(capabilities)}{why}"
    told = {**plan, "compute_capabilities": [f"SM{name.replace('.', '')}" for name in capabilities]}
    with tempfile.TemporaryDirectory(prefix="slipway-trial-") as scratch:
        out = Path(scratch) / "out"
        try:
            _toolchain(BUILD_S).run(_request(bundle=str(bundle.resolve()), plan=told, engine=dict(engine)), out)
        except Refused as error:
            raise Refused(
                f"{engine['graph']}: expected an engine of {NAME} {VERSION} for {device}: {error.message}",
                cure="change the graph",
            ) from None
        content, layers = (out / "engine.plan").read_bytes(), (out / "layers.txt").read_text(encoding="utf-8")
    digest = hashlib.sha256(content).hexdigest()
    return TrialEngine(f"{NAME} {VERSION}", device, digest, len(content), layers_of(layers)), content


def _toolchain(limit_s: float) -> Toolchain:
    return Toolchain(Path(sys.executable), Path(build_trial.__file__), limit_s, BUILD_BYTES)


def _request(**more: Any) -> dict[str, Any]:
    path = [str(Path(each).resolve()) for each in sys.path]
    return {"builder": builder.__file__, "path": path, "library": PACKAGE, **more}


def stand_in(capability: str, model: ir.Model) -> tuple[str, str]:
    """Return the compute capability that TensorRT-RTX builds for in place of another, and the reason, or nothing.

    Args:
        capability: compute capability of the device.
        model: the graph.
    """
    if capability == TURING and any(float_products(model)):
        return NEXT_OF_PCS, f" in the place of {TURING}, for which {NAME}, unlike TensorRT, has no float32 products"
    if capability in CAPABILITIES:
        return capability, ""
    below = [other for other in CAPABILITIES if _number(other) < _number(capability)]
    return below[-1], f" in the place of {capability}, for which {NAME} does not build"


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


def float_products(model: ir.Model) -> Iterator[ir.Node]:
    """Return the nodes that TensorRT-RTX does not build for Turing."""
    return (
        node
        for node in every_node(model)
        if node.op_type in FLOAT_PRODUCTS and node.outputs[0].dtype == ir.DataType.FLOAT
    )
