"""The genuine builder of TensorRT-RTX on small graphs: what it takes, what ends it, and what it computes in."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from compiler.base.pieces import write_files
from compiler.build.verify.precision_plan import Audited, Kept, audit, broken, counts, planned_nodes
from compiler.errors import Refused
from compiler.graph.stages import Array, Lowered
from compiler.targets.base import Built, Emitted, TrialEngine
from compiler.targets.tensorrt.target import Tensorrt, engine_plan
from compiler.targets.tensorrt.trial import VERSION, builder_version, built_trial
from tests.kit.graphs import parse
from tests.rtx.installed import NEEDS_RTX

pytestmark = NEEDS_RTX

WIDTH = 64

QUANTISED = """(float16[8,64] x, float16[64,64] w, float[64,64] v, int8[64,64] c, float16 s, int8 z)
    => (float16[8,64] y) {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    e = DequantizeLinear(c, s, z)
    integers = MatMul(d, e)
    halves = MatMul(integers, w)
    f = Cast<to = 1>(halves)
    floats = MatMul(f, v)
    norm = Softmax(floats)
    h = Cast<to = 10>(norm)
    y = Add(h, x)
}"""

IN_HALF = QUANTISED.replace("float[64,64] v", "float16[64,64] v").replace("Cast<to = 1>", "Cast<to = 10>")

ALL_INTEGER = QUANTISED.replace(
    "halves = MatMul(integers, w)",
    "i = QuantizeLinear(integers, s, z) j = DequantizeLinear(i, s, z) halves = MatMul(j, e)",
)

ATTENTION = """(float16[1,4,16,36] q, float16[1,4,36,144] k, bool[1,1,1,144] m, float16[1,4,16,144] c,
    float16[1,4,144,36] v, float16 fill) => (float16[1,4,16,36] o) {
    a = MatMul(q, k)
    b = Add(c, a)
    d = Where(m, b, fill)
    w = Softmax(d)
    o = MatMul(w, v)
}"""


def weights(half: bool = False) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    kind = np.float16 if half else np.float32
    return {
        "w": rng.standard_normal((WIDTH, WIDTH)).astype(np.float16),
        "v": rng.standard_normal((WIDTH, WIDTH)).astype(kind),
        "c": rng.integers(-127, 128, (WIDTH, WIDTH)).astype(np.int8),
        "s": np.array(0.125, np.float16),
        "z": np.array(0, np.int8),
    }


class _Unlinted(Tensorrt):
    """Writes graphs that rules of ours refuse: what the builder says of them is what is asked."""

    def accept(self, artifacts: Any) -> None:
        """Everything."""


def emitted(folder: Path, model: ir.Model, opset: int = 24) -> tuple[Built, Emitted]:
    """A graph as a bundle has it."""
    built = _Unlinted(compute_capability="8.6", opset=opset).emit(Lowered("net", model), {})
    write_files(folder, built.files)
    return built, built.artifacts[0]


def engine_of(folder: Path, text: str, arrays: dict[str, Array], *capabilities: str) -> tuple[TrialEngine, bytes]:
    """What the builder makes of a graph for capabilities, by default 8.6."""
    _, artefact = emitted(folder, parse(text, arrays))
    shapes = {str(value.name): list(value.shape or ()) for value in artefact.lowered.model.graph.inputs}
    plan = {**Tensorrt().builder_plan(), "flags": []}
    engine = {"graph": artefact.file, "profiles": [{name: [shape] * 3 for name, shape in shapes.items()}]}
    return built_trial(folder, plan, engine, capabilities or ("8.6",))


CONVOLVED = """(float16[1,32,16] x, float16 s, int8 z, int8[32,32,1] c, float16[32] scales, int8[32] zeros)
    => (float16[1,32,16] y) {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    e = DequantizeLinear<axis = 0>(c, scales, zeros)
    n = Conv<kernel_shape = [1]>(d, e)
    y = Add(n, x)
}"""
"""A quantised convolution over one place."""


def audited(folder: Path, planned: ir.Model, text: str, arrays: dict[str, Array]) -> tuple[Audited, ...]:
    engine, _ = engine_of(folder, text, arrays)
    assert engine.layers is not None
    return audit(planned_nodes(planned), engine.layers)


def test_it_is_of_the_version_that_is_pinned() -> None:
    assert builder_version() == VERSION


def test_every_node_computes_as_planned_and_the_layers_show_it(tmp_path: Path) -> None:
    found = audited(tmp_path, parse(QUANTISED, weights()), QUANTISED, weights())
    kept = {kind: {state for state, count in states.items() if count} for kind, states in counts(found).items()}
    assert kept == {"int8": {Kept.YES}, "float16": {Kept.YES}, "float32": {Kept.YES}}


@pytest.mark.parametrize(
    ("text", "half", "names"),
    [(IN_HALF, True, ["floats_matmul", "norm_softmax"]), (ALL_INTEGER, False, ["halves_matmul"])],
)
def test_a_pin_that_is_not_kept_and_a_node_that_is_quantised_are_caught_by_name(
    text: str, half: bool, names: list[str], tmp_path: Path
) -> None:
    """The engine is of a graph in which just that was changed, as a builder might have done."""
    found = audited(tmp_path, parse(QUANTISED, weights()), text, weights(half))
    assert [each.planned.node for each in broken(found)] == names


@pytest.mark.parametrize("capability", ["7.5", "8.6"])
def test_a_quantised_convolution_over_one_place_computes_integers_on_a_turing_too(
    capability: str, tmp_path: Path
) -> None:
    constants: dict[str, Array] = {
        "s": np.array(0.125, np.float16),
        "z": np.array(0, np.int8),
        "c": np.random.default_rng(0).integers(-127, 128, (32, 32, 1)).astype(np.int8),
        "scales": np.full(32, 0.01, np.float16),
        "zeros": np.zeros(32, np.int8),
    }
    engine, _ = engine_of(tmp_path, CONVOLVED, constants, capability)
    planned = planned_nodes(emitted(tmp_path / "again", parse(CONVOLVED, constants))[1].lowered.model)
    assert engine.layers is not None
    (found,) = (each for each in audit(planned, engine.layers) if each.planned.type == "int8")
    assert found.kept == Kept.YES


def test_an_attention_with_a_finite_mask_is_one_kernel_and_with_an_infinite_one_is_refused(tmp_path: Path) -> None:
    engine, _ = engine_of(tmp_path / "finite", ATTENTION, {"fill": np.array(-65504, np.float16)})
    assert engine.layers is not None
    assert [layer.name.partition("_myl")[0] for layer in engine.layers if layer.multiplies] == ["_gemm_mha_v2"]
    with pytest.raises(Refused, match=r"^graphs/net\.static\.onnx: expected an engine of TensorRT-RTX .*CHECK\(op"):
        engine_of(tmp_path / "infinite", ATTENTION, {"fill": np.array(-np.inf, np.float16)})


def test_a_graph_that_ends_its_process_is_refused_by_file_and_signal(tmp_path: Path) -> None:
    model = parse("(float[1,2,3,4] x) => (float[1,2,3,4] y) { y = Attention(x, x, x) }", opset=23)
    _, artefact = emitted(tmp_path, model)
    engine = {"graph": artefact.file, "profiles": [{"x": [[1, 2, 3, 4]] * 3}]}
    with pytest.raises(Refused, match=r"^graphs/net\.static\.onnx: .* got a process ended by SIGSEGV"):
        built_trial(tmp_path, {**Tensorrt().builder_plan(), "flags": []}, engine, ["8.6"])


def test_two_builds_give_the_same_bytes_and_four_devices_share_one_engine(tmp_path: Path) -> None:
    """In folders of different names: nothing of a path is in an engine."""
    arrays = {"fill": np.array(-65504, np.float16)}
    four = ("7.5", "8.6", "8.9", "12.0")
    first, _ = engine_of(tmp_path / "one", ATTENTION, arrays, *four)
    second, _ = engine_of(tmp_path / "another name", ATTENTION, arrays, *four)
    alone, _ = engine_of(tmp_path / "alone", ATTENTION, arrays)
    assert first == second
    assert alone.size_bytes < first.size_bytes < 1.1 * alone.size_bytes


def test_numbers_of_rows_share_an_engine_that_computes_as_planned(tmp_path: Path) -> None:
    """One engine with three profiles holds fewer copies of a weight of 2 MB than three engines; its layers are read."""
    width, rng = 1024, np.random.default_rng(0)
    text = (
        f"(float16[batch,{width}] x, float16[{width},{width}] w) => (float16[batch,{width}] y) {{ y = MatMul(x, w) }}"
    )
    arrays = {"w": (rng.standard_normal((width, width)) / 32).astype(np.float16)}
    bytes_by_choice = {}
    for one_engine in (True, False):
        target = Tensorrt(compute_capability="8.6", one_engine=one_engine)
        graph = Lowered("net", parse(text, arrays), batch_axis="batch")
        built = target.emit(graph, {"batch": (1, 4, 16)})
        write_files(tmp_path, built.files)
        plan = {**target.builder_plan(), "flags": []}
        engines = [built_trial(tmp_path, plan, engine_plan(artefacts), ["8.6"])[0] for artefacts in built.by_file]
        bytes_by_choice[one_engine] = sum(engine.size_bytes for engine in engines)
        for engine, artefacts in zip(engines, built.by_file, strict=True):
            assert engine.layers is not None
            assert not list(broken(audit(planned_nodes(artefacts[0].lowered.model), engine.layers)))
    assert bytes_by_choice[True] < 0.8 * bytes_by_choice[False]
