"""culprits: the nodes that break a gate are named, all of them and no others; spread errors blame nobody."""

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.culprits.records import Findings
from compiler.build.culprits.search import find_culprits
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import session_of
from compiler.graph.runners.stream import OriginalCall, Runner
from compiler.graph.stages import Lowered
from compiler.passes.pad_axes import PadAxes
from compiler.recipe.gates import Tolerance
from tests.kit.deep_stream import (
    behind,
    change_axis,
    change_weight,
    deep_stream,
    in_half,
    in_int8,
    largest_values,
    round_to_bits,
    round_weights,
    steps_of,
)
from tests.kit.graphs import random_weights
from tests.kit.offline import offline

Spoil = Callable[[ir.Model], None]

BEFORE = deep_stream()
STEPS = steps_of(BEFORE, 4)
RANGES = largest_values(BEFORE, STEPS)


def spoiled(*changes: Spoil) -> Lowered:
    after = deep_stream()
    for change in changes:
        change(after.model)
    graphs.infer_shapes(after.model)
    return after


def search(max_abs: float, *changes: Spoil) -> Findings:
    found = find_culprits(BEFORE, spoiled(*changes), STEPS, Tolerance(max_abs=max_abs))
    assert found is not None
    return found


def weight_of_key(model: ir.Model) -> None:
    change_weight(model, "wk_6", 1.2)


def axis_of_softmax(model: ir.Model) -> None:
    change_axis(model, "weights_5", 1)


def scale_of_scores(model: ir.Model) -> None:
    behind(model, "scores_7", "Mul", np.array(1.2, np.float32), "too_much")


def few_bits(model: ir.Model) -> None:
    round_to_bits(model, "active_4", 5)


def slightly_wrong_state(model: ir.Model) -> None:
    change_weight(model, "wv_0", 1.001)


DEFECTS = [
    pytest.param(weight_of_key, ["key_6_matmul"], id="weight"),
    pytest.param(axis_of_softmax, ["weights_5_softmax"], id="axis"),
    pytest.param(scale_of_scores, ["too_much_node"], id="scale"),
    pytest.param(few_bits, ["active_4_moved_node"], id="few bits"),
    pytest.param(slightly_wrong_state, ["value_0_matmul"], id="first layer"),
]


@pytest.mark.parametrize(("spoil", "expected"), DEFECTS)
def test_one_broken_node_of_twelve_layers_is_named_with_its_line(spoil: Spoil, expected: list[str]) -> None:
    found = search(1e-4, spoil)
    assert [each.node.name for each in found.culprits] == expected
    assert found.beyond
    assert found.used > 1.0 >= found.left
    place = found.culprits[0].place()
    assert place.source.startswith("tiny.py:")
    origin = {"too_much_node": "scores_7_matmul", "active_4_moved_node": "active_4_relu"}.get(expected[0], expected[0])
    right = next(node for node in BEFORE.model.graph if node.name == origin)
    assert place.source == graphs.source_of(right)
    assert found.culprits[0].share is not None
    assert found.culprits[0].share > 0.99


def test_two_broken_nodes_are_both_named() -> None:
    found = search(1e-4, weight_of_key, axis_of_softmax)
    assert {each.node.name for each in found.culprits} == {"key_6_matmul", "weights_5_softmax"}
    assert found.left <= 1.0


def test_a_harmless_defect_beside_a_broken_node_is_not_named() -> None:
    found = search(1e-3, lambda model: change_weight(model, "wq_2", 1.0 + 2e-5), axis_of_softmax)
    assert found.differing == 2
    assert [each.node.name for each in found.culprits] == ["weights_5_softmax"]


@pytest.mark.parametrize(("spoil", "expected"), DEFECTS[1:4:2])
def test_a_broken_node_is_named_among_nodes_that_all_round(spoil: Spoil, expected: list[str]) -> None:
    found = search(4e-3, spoil, in_half)
    assert [each.node.name for each in found.culprits] == expected
    assert found.beyond
    assert found.differing > 170


def test_an_overflow_in_half_precision_is_named_first() -> None:
    def overflow(model: ir.Model) -> None:
        behind(model, "up_9", "Mul", np.array(60_000, np.float32), "big")

    def make_up_for_it(model: ir.Model) -> None:
        change_weight(model, "wd_9", 1 / 60_000)

    found = search(5e-3, overflow, make_up_for_it, in_half)
    assert found.culprits[0].node.name == "big_node"
    assert found.culprits[0].after[-1].non_finite > 0
    assert "not finite" in str(found.culprits[0].after[-1])
    assert np.isinf(found.used)
    assert np.isfinite(found.left)


def test_a_scale_of_int8_that_is_too_small_is_named() -> None:
    found = search(0.1, lambda model: in_int8(model, {**RANGES, "active_7": RANGES["active_7"] / 8}))
    assert [each.local.tensor for each in found.culprits] == ["down_7"]
    assert found.beyond
    assert {node.op_type for node in found.culprits[0].nodes} == {"QuantizeLinear", "DequantizeLinear", "MatMul"}
    assert found.culprits[0].node.name == "down_7_matmul"


def test_a_range_that_is_too_wide_for_int8_is_named() -> None:
    found = search(0.1, lambda model: in_int8(model, {**RANGES, "y_3": 40 * RANGES["y_3"]}))
    assert [each.local.tensor for each in found.culprits] == ["up_3"]


@pytest.mark.parametrize(
    ("change", "max_abs"),
    [
        pytest.param(in_half, 1.9e-3, id="half precision, missed by little"),
        pytest.param(round_weights, 1e-4, id="weights"),
        pytest.param(lambda model: in_int8(model, RANGES), 5e-3, id="int8"),
    ],
)
def test_an_error_of_many_nodes_blames_none(change: Spoil, max_abs: float) -> None:
    found = search(max_abs, change)
    assert not found.culprits
    assert len(found.parts) == 3
    assert found.differing > 50
    assert found.worst is not None
    assert found.worst.beyond < 8
    assert all(each.share is not None and each.share < 0.75 for each in found.parts)


def test_a_gate_that_holds_has_no_culprits() -> None:
    assert find_culprits(BEFORE, spoiled(round_weights), STEPS, Tolerance(max_abs=1.0)) is None


def test_coarse_rounding_is_named_although_it_rounds_otherwise_when_it_is_fed_a_little_otherwise() -> None:
    found = search(2e-2, lambda model: round_to_bits(model, "mixed_4", 4), in_half)
    assert [each.local.tensor for each in found.culprits] == ["y_4"]
    assert found.beyond
    assert found.left <= 1.0


OFFLINE = """(float[batch,time,4] x, float[4,4] w, float[4,4] v) => (float[batch,s,4] y) <int64[1] one = {1}>
 { h = MatMul(x, w) e = Exp(h) m = ReduceMean<keepdims = 1>(e, one) d = Sub(e, m) y = MatMul(d, v) }"""


@pytest.mark.parametrize("optimize", [False, True])
def test_whole_utterances_of_any_length(optimize: bool) -> None:
    weights = random_weights({"w": (4, 4), "v": (4, 4)})
    before = offline(OFFLINE, weights)
    graphs.infer_shapes(before.model)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1, length, 4)).astype(np.float32)} for length in (3, 7, 5)]
    steps = [OriginalCall(feed, runner_of(before).step(feed), {}) for feed in feeds]
    after = PadAxes().apply(offline(OFFLINE, weights)).lowered
    assert find_culprits(before, after, steps, Tolerance(max_abs=1e-4), optimize=optimize) is None
    change_weight(after.model, "v", 1.5)
    found = find_culprits(before, after, steps, Tolerance(max_abs=1e-4), optimize=optimize)
    assert found is not None
    assert [each.node.op_type for each in found.culprits] == ["MatMul"]
    assert [each.local.tensor for each in found.culprits] == ["y"]


def test_the_first_call_of_a_stream_is_searched_by_itself() -> None:
    def with_first_call(factor: float) -> Lowered:
        lowered = deep_stream(2)
        first = Runner(lowered, session_of(lowered.model))
        model = graphs.clone(lowered.model)
        for state in lowered.states:  # the first call has no caches: theirs are constants without frames
            value = graphs.inputs_named(model)[state.input]
            empty = graphs.Inserter(model, "test", before=next(iter(model.graph))).constant(
                first.states[state.input], state.input
            )
            for use in list(value.uses()):
                use.node.replace_input_with(use.idx, empty)
            model.graph.inputs.remove(value)
        change_weight(model, "wq_1", factor)
        return dataclasses.replace(lowered, first_call=model)

    before = with_first_call(1.0)
    steps = steps_of(before, 4)
    found = find_culprits(before, with_first_call(1.5), steps, Tolerance(max_abs=1e-4))
    assert found is not None
    assert [each.node.name for each in found.culprits] == ["query_1_matmul"]
    assert found.left <= 1.0
    after = with_first_call(1.0)
    change_weight(after.model, "wk_1", 1.5)
    found = find_culprits(before, after, steps, Tolerance(max_abs=1e-4))
    assert found is not None
    assert [each.node.name for each in found.culprits] == ["key_1_matmul"]
