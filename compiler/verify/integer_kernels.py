"""Whether a quantised graph is what it says: integers in the graph that ONNX Runtime makes of it, and time saved by it.

A pattern that the runtime does not recognise runs in float with roundings on top, slower than what it replaced.
"""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
import onnxruntime

from compiler.errors import GateFailed, Place
from compiler.records.findings import Finding
from compiler.runners.session import open_session
from compiler.targets.base import Emitted
from compiler.verify.speed import full_feed
from runtime_lite.format.manifest import bucket_name

REAL = ("Conv", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "NhwcFusedConv", "TransposeMatMul")
"""Operators that multiply real numbers, as ONNX Runtime names them before and after its optimisations."""

INTEGER = (
    "ConvInteger", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QGemm", "QLinearConv",
    "QLinearMatMul",
)  # fmt: skip
"""Operators that multiply integers."""

MOVED = ("Reshape", "Transpose")
"""What ONNX Runtime writes around a product that it has given another rank."""

FUSED_STEPS = 4
"""Nodes behind a product whose result may be that of one kernel: a bias, an activation, a pair of roundings."""

ROUNDS = 15
ROUND_S = 0.04
"""Time of one graph in one round; several calls where one is shorter."""


def integer_layers(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Products and convolutions that a pass has written to run on integers."""
    made = {name: node for node in model.graph.node for name in node.output}
    stored = {tensor.name for tensor in model.graph.initializer}
    return [node for node in model.graph.node if node.op_type in INTEGER or _reads_codes(node, made, stored)]


def _reads_codes(node: onnx.NodeProto, made: Mapping[str, onnx.NodeProto], stored: set[str]) -> bool:
    """Whether the second operand of a product is dequantised from stored codes."""
    weights = made.get(node.input[1]) if node.op_type in REAL and len(node.input) > 1 else None
    return weights is not None and weights.op_type == "DequantizeLinear" and weights.input[0] in stored


def check_integer_kernels(file: Path, graph: str) -> int:
    """Look at the graph that ONNX Runtime runs; how many products and convolutions run on integers.

    Args:
        file: an ONNX file of a bundle.
        graph: its name, for messages.

    Raises:
        GateFailed: names the nodes that do not.
    """
    shipped = onnx.load(file, load_external_data=False)
    layers = integer_layers(shipped)
    if not layers:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        run = onnx.load(path, load_external_data=False)
    left = _left_real(shipped, layers, run)
    integer = sum(node.op_type in INTEGER for node in run.graph.node)
    if left or integer < len(layers):
        named = ", ".join(left) or "which is not clear from their names"
        raise GateFailed(
            f"expected {len(layers)} products and convolutions on integers in the graph that ONNX Runtime runs, got "
            f"{integer}; in float stay {named}",
            cure="keep these nodes in float with keep_float, or choose the placement that fits the target",
            place=Place(stage="integer kernels", graph=graph, node=left[0] if left else ""),
            findings=[Finding("integer kernels", graph, "", integer, len(layers), False, f"in float stay {named}")],
        )
    return len(layers)


def _left_real(shipped: onnx.ModelProto, layers: Sequence[onnx.NodeProto], run: onnx.ModelProto) -> list[str]:
    """Names of the layers whose result, or what is fused to it, comes from a product of real numbers."""
    real = {name for node in run.graph.node if node.op_type in REAL for name in node.output}
    real |= {node.output[0] for node in run.graph.node if node.op_type in MOVED and node.input[0] in real}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in shipped.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found = []
    for layer in layers:
        name = layer.output[0]
        for _ in range(FUSED_STEPS):
            if name in real:
                found.append(str(layer.name))
                break
            behind = readers.get(name, [])
            if len(behind) != 1 or behind[0].op_type in REAL:
                break
            name = behind[0].output[0]
    return found


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Time of one graph over that of another, per round.

    Attributes:
        sizes: the bucket.
        median: over the rounds.
        low: 10th percentile.
        high: 90th percentile.
    """

    sizes: str
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.sizes} {self.median:.2f} ({self.low:.2f}..{self.high:.2f})"


def time_ratio(
    sizes: str,
    graph: Callable[[], object],
    other: Callable[[], object],
    *,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.thread_time,
) -> Ratio:
    """Run both in turns, in alternating order, so that what else the machine does falls on both.

    Args:
        sizes: the bucket, for messages.
        graph: runs one call.
        other: runs one call of what it is compared with.
        rounds: how often both are timed.
        clock: seconds; those that the calling thread has spent computing, on which all of a session of one thread
            runs, so that nothing is counted while another process has the core.
    """
    runs = (graph, other)
    calls = max(1, round(ROUND_S / max(max(_timed(run, 2, clock) for run in runs), 1e-6)))
    ratios = []
    for index in range(rounds):
        order = (0, 1) if index % 2 else (1, 0)
        times = {which: _timed(runs[which], calls, clock) for which in order}
        ratios.append(times[0] / times[1])
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    return Ratio(sizes, statistics.median(ratios), tenths[0], tenths[-1])


def _timed(run: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(calls):
        run()
    return (clock() - started) / calls


def measure_ratios(folder: Path, artifacts: Sequence[Emitted], other: Path, others: Sequence[Emitted]) -> list[Ratio]:
    """The time of every bucket's graph over that of the same bucket before rounding, on one thread."""
    found = []
    for rounded, exact in zip(artifacts, others, strict=True):
        sessions = [
            open_session(str(place / emitted.file), optimize=True)
            for place, emitted in ((folder, rounded), (other, exact))
        ]
        feeds = [
            {value.name: full_feed(value, emitted) for value in session.get_inputs()}
            for session, emitted in zip(sessions, (rounded, exact), strict=True)
        ]
        a, b = (
            lambda session=session, feed=feed: session.run(None, feed)
            for session, feed in zip(sessions, feeds, strict=True)
        )
        found.append(time_ratio(bucket_name(rounded.sizes), a, b))
    return found
