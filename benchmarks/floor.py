"""Computes the least time of a call on this machine: that of its arithmetic, or of reading its weights once.

The floor is the larger of the two. Both rates are measured in the same run: the peak of arithmetic by large products in
the engine that runs the call, for float32 and 8-bit integers separately; the rate of reading by a pass over a buffer
larger than all caches. Other reads and writes of a call are left out, so no call is faster, unless its weights stay in
a cache from one call to the next.
"""

import dataclasses
import functools
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir

from benchmarks.serving.rounds import spread
from compiler.graph import model as graphs
from compiler.graph.operator_costs import Sizes, bytes_of, multiply_adds
from compiler.graph.runners.session import Session, open_session
from compiler.targets.base import Target

Precision = Literal["float32", "int8"]

Open = Callable[[bytes, int], Session]
"""Opens a serialized model for so many threads in the engine whose peak counts."""

SIDES = (512, 1024, 2048)
"""Of the products: which size is the fastest differs from machine to machine."""

CALLS = 5
"""Of each product, and passes over the buffer; the fastest counts."""

LEAST_BUFFER, CACHES = 2**28, 4
"""Bytes that are streamed: so many, or so many times the largest cache."""

PRODUCTS: Mapping[Precision, str] = {
    "float32": "y = MatMul(x, w)",
    "int8": """coded = QuantizeLinear(x, step, middle)  real = DequantizeLinear(coded, step, middle)
        weights = DequantizeLinear(w, step, nil)  y = MatMul(real, weights)""",
}
"""What engines run on integers, they find in this form."""


@dataclasses.dataclass(frozen=True)
class Work:
    """The arithmetic and the weights of a call.

    Attributes:
        multiply_adds: number of multiply-adds by precision.
        weight_bytes: bytes of the constants that are read whole, each counted once.
    """

    multiply_adds: Mapping[Precision, int]
    weight_bytes: int


class Machine:
    """The rates of this machine, each measured at its first use.

    Args:
        threads: number of threads of a call.
        opens: returns a session of the engine.
    """

    def __init__(self, threads: int = 1, opens: Open | None = None) -> None:
        """Start without measurements."""
        self._threads, self._opens = threads, opens or onnx_runtime
        self._peaks: dict[Precision, float] = {}

    def peak(self, precision: Precision) -> float:
        """Return the multiply-adds per second of the fastest large product."""
        if precision not in self._peaks:
            self._peaks[precision] = max(self._product_rate(precision, side) for side in SIDES)
        return self._peaks[precision]

    @functools.cached_property
    def bytes_per_s(self) -> float:
        """Rate at which all threads together read a buffer larger than all caches."""
        count = max(LEAST_BUFFER, CACHES * largest_cache()) // 4 // self._threads
        parts = [np.ones(count, np.float32) for _ in range(self._threads)]
        return max(self._streamed(parts) for _ in range(CALLS))

    def floor_s(self, work: Work) -> float:
        """Return the larger of the times of arithmetic and of reading, in seconds."""
        arithmetic = sum(count / self.peak(kind) for kind, count in work.multiply_adds.items() if count)
        return max(arithmetic, work.weight_bytes / self.bytes_per_s)

    def told(self, work: Work) -> str:
        """Return a sentence on how the floor of a call is computed."""
        parts = [
            f"{count / 1e6:.0f} M multiply-adds in {kind} at {self.peak(kind) / 1e9:.0f} G/s"
            for kind, count in work.multiply_adds.items()
            if count
        ]
        read = f"{work.weight_bytes / 1e6:.1f} MB of weights at {self.bytes_per_s / 1e9:.1f} GB/s"
        return f"{1e3 * self.floor_s(work):.3g} ms: the larger of {' and '.join(parts) or 'no products'}, and {read}"

    def _product_rate(self, precision: Precision, side: int) -> float:
        session = self._opens(product(precision, side), self._threads)
        feed = {"x": np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)}
        clock = time.thread_time if self._threads == 1 else time.perf_counter  # one thread is the caller's own
        times = []
        for _ in range(CALLS):
            started = clock()
            session.run(None, feed)
            times.append(clock() - started)
        return side**3 / max(min(times), 1e-9)

    def _streamed(self, parts: Sequence[np.ndarray]) -> float:
        """Return the bytes per second of one pass, with a thread per part, in its computing time."""
        times: list[float] = []

        def read(part: np.ndarray) -> None:
            started = time.thread_time()
            part.max()
            times.append(time.thread_time() - started)

        threads = [threading.Thread(target=read, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(part.nbytes for part in parts) / max(*times, 1e-9)


def onnx_runtime(model: bytes, threads: int) -> Session:
    """Return a session of ONNX Runtime with all its optimisations."""
    session: Session = open_session(model, optimize=True, threads=threads)
    return session


def engine_of(target: Target) -> Open:
    """Return a function that opens the artefacts of a target on one thread."""

    def opens(model: bytes, threads: int) -> Session:
        assert threads == 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "product.onnx")
            path.write_bytes(model)
            return target.open(path)

    return opens


def product(precision: Precision, side: int) -> bytes:
    """Return a graph of the product of two square matrices, the right one constant."""
    random = np.random.default_rng(0)
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    product (float[{side},{side}] x, {"float" if precision == "float32" else "int8"}[{side},{side}] w) => (float y)
    <float step = {{0.02}}, uint8 middle = {{128}}, int8 nil = {{0}}> {{ {PRODUCTS[precision]} }}"""
    model = ir.from_onnx_text(text)
    weights = model.graph.inputs.pop()
    real = random.standard_normal((side, side), dtype=np.float32)
    weights.const_value = ir.tensor(real if precision == "float32" else (50 * real).clip(-127, 127).astype(np.int8))
    model.graph.register_initializer(weights)
    return graphs.serialized(model)


def largest_cache() -> int:
    """Return the bytes of the largest cache of a core; 0 if unknown."""
    sizes = [file.read_text().strip() for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]] for size in sizes if size[-1] in "KM"), default=0)


def work_of(model: ir.Model, sizes: Sizes) -> Work:
    """Return the work of one call of a graph.

    Args:
        model: a graph, whose shapes are inferred.
        sizes: sizes of axes by name; an axis without a size counts as 1.
    """
    graphs.infer_shapes(model)
    counts = _counted(model.graph, sizes)
    read_whole = [value for value in model.graph.initializers.values() if _is_read_whole(value)]
    return Work(counts, bytes_of(read_whole, sizes))


def _counted(nodes: Iterable[ir.Node], sizes: Sizes) -> dict[Precision, int]:
    """Return multiply-adds by precision; of two branches those of the one with fewer."""
    total: dict[Precision, int] = {"float32": 0, "int8": 0}
    for node in nodes:
        branches = [_counted(branch, sizes) for branch in _branches(node)]
        own = min(branches, key=lambda counts: sum(counts.values())) if branches else {
            _precision_of(node): multiply_adds(node, sizes)
        }  # fmt: skip
        for kind, count in own.items():
            total[kind] += count
    return total


def _branches(node: ir.Node) -> Iterator[ir.Graph]:
    for held in node.attributes.values():
        if held.type == ir.AttributeType.GRAPH:
            yield held.as_graph()


def _precision_of(node: ir.Node) -> Precision:
    """Return integers if an operator takes them, or both operands are dequantised, which engines fuse."""
    operands = [value for value in node.inputs[:2] if value is not None]
    turned = [value.producer() for value in operands]
    if all(made is not None and made.op_type == "DequantizeLinear" for made in turned):
        return "int8"
    integers = (ir.DataType.INT8, ir.DataType.UINT8)
    return "int8" if any(value.dtype in integers for value in operands) else "float32"


def _is_read_whole(value: ir.Value) -> bool:
    """Return whether a node reads all of a constant; lookups read only a few rows."""
    return any(use.node.op_type != "Gather" or use.idx != 0 for use in value.uses())


def to_floor(times: Sequence[float], floor: float) -> str:
    """Return times as multiples of a floor in the same unit: median (10th..90th percentile)."""
    return spread([each / floor for each in times])
