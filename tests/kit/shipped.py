"""What ships, made of a few lines of text: artefacts of one graph and the record that gates look at."""

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import onnx_ir as ir

from compiler.build.verify.chunk_lengths import Flush
from compiler.build.verify.edge_agreement import EdgeCase
from compiler.build.verify.gate import Artefacts, OriginalGraph, Shipped, ShippedGraph
from compiler.build.verify.stream_artefacts import StreamArtefacts
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Feed, Lowered
from compiler.recipe.gates import ParityGate
from compiler.targets.base import Built, Emitted
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite.executors.executor import make_executor

GATE = ParityGate(max_abs=1e-5, chained_steps=4)

MIXING = "(float[4,2] x) => (float[4,2] y) <int64[1] z = {0}> { r = Relu(x) m = ReduceSum(r, z) y = Add(r, m) }"
"""Every row is added to every row."""


def silent(done: int, total: int) -> None:
    """Nobody looks."""


def emitted(folder: Path, text: str, sizes: dict[str, int], batch: str | None = "batch") -> Emitted:
    """A graph from text as an artefact."""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\ng {text}')
    name = "_".join(["g", *map(str, sizes.values())]) + ".onnx"
    (folder / name).write_bytes(ir.to_proto(model).SerializeToString())
    return Emitted(sizes, name, (), Lowered("net", model, batch_axis=batch))


def relu(rows: int) -> str:
    return f"(float[{rows},2] x) => (float[{rows},2] y) {{ y = Relu(x) }}"


def feeds(count: int, seed: int = 0) -> list[Feed]:
    numbers = np.random.default_rng(seed).standard_normal((count, 1, 2)).astype(np.float32)
    return [{"x": chunk} for chunk in numbers]


def stream_artefacts(
    folder: Path, artifacts: Sequence[Emitted], streams: Sequence[Sequence[Feed]], steps: Sequence[OriginalCall] = ()
) -> StreamArtefacts:
    lowered = artifacts[0].lowered
    return StreamArtefacts(folder, lowered, artifacts, GATE, steps, streams, OnnxStatic().open, Flush())


def shipped(
    folder: Path, artefacts: Artefacts, artifacts: Sequence[Emitted], cases: Sequence[EdgeCase] = ()
) -> Shipped:
    """One graph of a bundle that has no recipe."""
    graph = ShippedGraph(
        lowered=artifacts[0].lowered,
        built=Built(tuple(artifacts), {}, {}),
        limits=GATE,
        steps=(),
        artefacts=artefacts,
        explain=lambda error, *_: error,
        is_rounded=False,
        is_timed_here=True,
        integer_products=OnnxStatic().integer_products,
        before_rounding=mock.Mock(),
        open_exact=OnnxStatic().open,
        forms=(),
        rounding_variants=(),
        with_variants=mock.Mock(),
    )
    original = OriginalGraph(gate=GATE, run=mock.Mock(), streams=list, edges=lambda: cases, check_apart=mock.Mock())
    return Shipped(mock.Mock(), folder, {"net": original}, {"net": graph}, OnnxStatic().open, make_executor, name="net")
