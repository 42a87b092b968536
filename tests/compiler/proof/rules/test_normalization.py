"""Rules SM and NM: scores of padding count for nothing, statistics are of valid entries; all holds under attack."""

import dataclasses
import math

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.facts import Fill
from compiler.proof.facts.interval import ANYTHING, ONE, ZERO, Interval
from compiler.proof.facts.layout import Axis, Frames, Plain, Segment, Side, joined
from tests.kit.judged import attack, check, check_refused, layouts, rewrites
from tests.kit.soundness import Node, Operand, check_node, constant

BATCH, TIME = graphs.symbol("batch"), graphs.symbol("time")
ROWS = "0: rows(batch)"
LEFT = f"{ROWS}, 1: [time, left]"
MIXED = f"{ROWS}, 1: [time, left], 2: [key, left]"
FINITE = Interval(-3.0, 5.0)
LOWEST = float(np.finfo(np.float32).min)
DEEP = Interval(-math.inf, -1e30)
MASKED = Interval(-math.inf, 9.0)
WINDOW = joined([Segment(TIME, Side.RIGHT), Segment(3)])
CENTERED = joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)])
ROWS_OF: list[str | int] = ["batch", "2*batch", 1]
FRAMES_OF_CHANNELS = (Plain(2), Frames((Segment(TIME),)))


def x(*shape: int | str, padding: Interval = ANYTHING, valid: Interval | None = FINITE, **axes: Axis) -> Operand:
    return Operand(shape, padding=padding, valid=valid, axes={int(at[1:]): axis for at, axis in axes.items()})


def fills(node: Node, rule: str, axes: str) -> list[tuple[int, float]]:
    verdict = check(node, rule, axes, extremes=False)
    return [(need.axis, need.value) for need in verdict.needs if isinstance(need, Fill)]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_over_another_axis_needs_nothing(op: str) -> None:
    assert not check(Node(op, [x("batch", "time", 4)]), "SM1", LEFT).needs
    assert check(Node(op, [x("batch", 4, "time")], {"axis": 1}), "SM1", f"{ROWS}, 2: [time, left]").pointwise


def scores(first: Interval, queries: Interval, keys: Interval, both: Interval) -> Operand:
    """Scores [batch, time, key] with contents of the valid region, padded queries, padded keys and both."""
    regions = {frozenset({1}): queries, frozenset({2}): keys, frozenset({1, 2}): both}
    return Operand(("batch", "time", "key"), valid=first, padding=regions)


SCORES = {
    "anything": (scores(FINITE, ANYTHING, ANYTHING, ANYTHING), [(2, LOWEST)]),
    "finite": (scores(FINITE, FINITE, FINITE, FINITE), [(2, LOWEST)]),
    "masked by the model": (scores(FINITE, FINITE, DEEP, ANYTHING), []),
    "masked by the model, which may hide a row whole": (scores(MASKED, MASKED, DEEP, ANYTHING), [(2, -math.inf)]),
    "masked by infinities": (scores(MASKED, MASKED, Interval(-math.inf, -math.inf), ANYTHING), []),
    "possibly masked": (scores(MASKED, MASKED, MASKED, ANYTHING), [(2, -math.inf)]),
    "possibly NaN": (scores(FINITE, FINITE, Interval(-math.inf, -1e30, True), ANYTHING), [(2, LOWEST)]),
    "not deep enough": (scores(FINITE, FINITE, Interval(-1e9, -1e9), FINITE), [(2, LOWEST)]),
    "possibly not masked": (scores(FINITE, FINITE, Interval(-1e31, 0.0), FINITE), [(2, LOWEST)]),
}


@pytest.mark.parametrize(("operand", "expected"), SCORES.values(), ids=SCORES)
def test_scores_of_padded_keys_are_masked_where_they_are_not(
    operand: Operand, expected: list[tuple[int, float]]
) -> None:
    node = Node("Softmax", [operand])
    assert fills(node, "SM2", MIXED) == expected
    verdict = check(node, "SM2", MIXED, extremes=False)
    may_hide_a_row = operand.valid == MASKED
    assert verdict.outputs[0].content({2}) == Interval(0.0, 0.0, nan=may_hide_a_row)
    assert verdict.outputs[0].valid == Interval(0.0, 1.0, nan=may_hide_a_row)
    assert verdict.at_least_one == (graphs.symbol("key"),)


def test_queries_in_the_padding_may_see_nothing() -> None:
    def padded_queries(first: Interval, queries: Interval, keys: Interval, both: Interval) -> tuple[Interval, Interval]:
        node = Node("Softmax", [scores(first, queries, keys, both)])
        (out,) = check(node, "SM2", MIXED, extremes=False).outputs
        return out.content({1}), out.content({1, 2})

    probabilities = Interval(0.0, 1.0)
    maybe = Interval(0.0, 1.0, True)
    assert padded_queries(FINITE, FINITE, FINITE, FINITE) == (probabilities, ZERO)
    assert padded_queries(FINITE, ANYTHING, FINITE, FINITE) == (maybe, maybe)
    assert padded_queries(FINITE, MASKED, DEEP, DEEP) == (maybe, maybe)
    assert padded_queries(FINITE, FINITE, DEEP, FINITE) == (probabilities, probabilities)
    assert padded_queries(FINITE, Interval(-1e35, 0.0), DEEP, DEEP) == (probabilities, probabilities)
    assert padded_queries(FINITE, FINITE, DEEP, Interval(0.0, math.inf)) == (maybe, maybe)


def test_the_mask_of_half_precision_is_infinite() -> None:
    node = Node("Softmax", [Operand(("batch", "time"), ir.DataType.FLOAT16, FINITE)])
    assert fills(node, "SM2", LEFT) == [(1, -math.inf)]


def test_log_softmax() -> None:
    (out,) = check(Node("LogSoftmax", [x("batch", "time", 4, padding=FINITE)]), "SM1", LEFT).outputs
    assert out.padding(1).low == pytest.approx(-8 - math.log(4), rel=1e-3) and out.padding(1).high == 0
    (out,) = check(Node("LogSoftmax", [x("batch", "time")]), "SM2", LEFT).outputs
    assert not out.padding(1).nan and out.padding(1).high <= 0


def test_hardmax_takes_the_first_of_equal_entries() -> None:
    assert fills(Node("Hardmax", [x("batch", "time")]), "SM2", LEFT) == [(1, LOWEST)]
    assert fills(Node("Hardmax", [x("batch", "time", valid=MASKED)]), "SM2", LEFT) == [(1, -math.inf)]
    right = Node("Hardmax", [x("batch", "time", valid=MASKED)], right=["time"])
    check_refused(right, "where padding could win ties")


SEGMENTS = {
    "right-aligned": (Node("Softmax", [x("batch", "time")], right=["time"]), f"{ROWS}, 1: [time, right]"),
    "a window": (Node("Softmax", [x("batch", "time + 3", a1=WINDOW)]), f"{ROWS}, 1: [time + 3, right]"),
    "two segments": (
        Node("Softmax", [x("batch", "2*time - 1", a1=CENTERED)]),
        f"{ROWS}, 1: [time, right] ++ [time - 1, left]",
    ),
    "heads in the batch": (
        Node("Softmax", [x("2*batch", 3, "time")]), "0: rows(batch) * 2, 2: [time, left]",
    ),
    "a shared value": (Node("Softmax", [x(1, "time")]), LEFT),
}  # fmt: skip


@pytest.mark.parametrize(("node", "axes"), SEGMENTS.values(), ids=SEGMENTS)
def test_softmax_over_any_layout(node: Node, axes: str) -> None:
    assert len(fills(node, "SM2", axes)) == 1


GAMMA, BETA = constant([1.0, -2.0, 0.5, 3.0]), constant([0.0, 1.0, -1.0, 7.0])


def test_layer_normalization_bounds_what_is_finite() -> None:
    for op, opset, bound in (("LayerNormalization", 17, 2 * 3.0 + 7.0), ("RMSNormalization", 23, 2 * 3.0)):
        parameters = [GAMMA, BETA] if op == "LayerNormalization" else [GAMMA]
        huge = Interval(-1e20, 1e20)
        node = Node(op, [x("batch", "time", 4, padding=huge), *parameters], opset=opset)
        verdict = check(node, "NM1", LEFT, extremes=False)
        assert verdict.pointwise and not verdict.needs
        assert verdict.outputs[0].padding(1).magnitude == pytest.approx(bound, rel=1e-3)
        node = Node(op, [x("batch", "time", 4), *parameters], opset=opset)
        assert check(node, "NM1", LEFT, extremes=False).outputs[0].padding(1) == ANYTHING


def test_layer_normalization_without_epsilon_may_give_nan() -> None:
    node = Node("LayerNormalization", [x("batch", "time", 4, padding=ZERO), GAMMA], {"epsilon": 0.0})
    assert check(node, "NM1", LEFT, extremes=False).outputs[0].padding(1) == ANYTHING


OVER_OTHERS = [
    Node("InstanceNormalization", [x("batch", 4, 3, padding=FINITE), GAMMA, BETA]),
    Node("GroupNormalization", [x("batch", 4, 3), GAMMA, BETA], {"num_groups": 2}, opset=21),
    Node("MeanVarianceNormalization", [x("batch", 4, 3)], {"axes": [1, 2]}),
    Node("LpNormalization", [x("batch", 4)], {"p": 1}),
]


@pytest.mark.parametrize("node", OVER_OTHERS, ids=lambda node: str(node.op))
def test_normalizations_of_rows_need_nothing(node: Node) -> None:
    verdict = check(node, "NM4" if node.op == "LpNormalization" else "NM1", ROWS, extremes=False)
    assert verdict.pointwise and not verdict.needs


OVER_TIME = {
    "instance": (Node("InstanceNormalization", [x("batch", 4, "time"), GAMMA, BETA]), f"{ROWS}, 2: [time, left]"),
    "instance over two axes": (
        Node("InstanceNormalization", [x("batch", 4, "time", "key"), GAMMA, BETA]),
        f"{ROWS}, 2: [time, left], 3: [key, left]",
    ),
    "instance over channels and time": (
        Node("InstanceNormalization",
             [x("batch", 1, "2*time", a2=FRAMES_OF_CHANNELS), constant([1.0]), constant([0.0])]),
        f"{ROWS}, 2: 2 * [time, left]",
    ),
    "right-aligned": (
        Node("InstanceNormalization", [x("batch", 4, "time"), GAMMA, BETA], right=["time"]),
        f"{ROWS}, 2: [time, right]",
    ),
    "segments": (
        Node("InstanceNormalization", [x("batch", 4, "2*time - 1", a2=CENTERED), GAMMA, BETA]),
        f"{ROWS}, 2: [time, right] ++ [time - 1, left]",
    ),
    "heads in the batch": (
        Node("InstanceNormalization", [x("2*batch", 4, "time"), GAMMA, BETA]), "0: rows(batch) * 2, 2: [time, left]",
    ),
    "a shared value": (Node("InstanceNormalization", [x(1, 4, "time"), GAMMA, BETA]), f"{ROWS}, 2: [time, left]"),
    "groups": (
        Node("GroupNormalization", [x("batch", 4, "time", 2), GAMMA, BETA], {"num_groups": 2}, opset=21),
        f"{ROWS}, 2: [time, left]",
    ),
    "groups of opset 18": (
        Node("GroupNormalization", [x("batch", 4, "time"), constant([1.0, 2.0]), constant([0.0, 1.0])],
             {"num_groups": 2}, opset=18),
        f"{ROWS}, 2: [time, left]",
    ),
    "layer": (
        Node("LayerNormalization", [x("batch", "time", 4), constant([2.0]), constant([1.0])], {"axis": 1}), LEFT,
    ),
    "layer with a scale per channel": (Node("LayerNormalization", [x("batch", "time", 4), GAMMA], {"axis": 1}), LEFT),
    "root mean square": (Node("RMSNormalization", [x("batch", "time", 4), GAMMA], {"axis": 1}, opset=23), LEFT),
}  # fmt: skip


@pytest.mark.parametrize(("node", "axes"), OVER_TIME.values(), ids=OVER_TIME)
def test_statistics_over_padded_axes_are_those_of_valid_entries(node: Node, axes: str) -> None:
    node = dataclasses.replace(node, least={"time": 3, "key": 2})
    verdict = check_node(node, trials=8, tolerance=1e-4)
    assert (verdict.rule, layouts(verdict), rewrites(verdict)) == ("NM2", axes, ["normalize"])
    assert verdict.at_least_one and not verdict.pointwise
    assert all(need.value == 0.0 for need in verdict.needs if isinstance(need, Fill))


def test_padding_of_a_normalization_over_it_holds_the_bias() -> None:
    node = Node("InstanceNormalization", [x("batch", 4, "time"), GAMMA, constant(np.full(4, 0.0))])
    assert check(node, "NM2", f"{ROWS}, 2: [time, left]", extremes=False).outputs[0].padding(2) == ZERO
    node = Node("InstanceNormalization", [x("batch", 4, "time"), GAMMA, BETA])
    held = check(node, "NM2", f"{ROWS}, 2: [time, left]", extremes=False).outputs[0].padding(2)
    assert (held.low, held.high) == (-1.0, 7.0)


def test_lp_normalization_over_time() -> None:
    assert fills(Node("LpNormalization", [x("batch", "time")]), "NM4", LEFT) == [(1, 0.0)]
    assert fills(Node("LpNormalization", [x("batch", "time", padding=ZERO)], {"p": 1}), "NM4", LEFT) == []


def test_lp_normalization_of_each_frame() -> None:
    assert check(Node("LpNormalization", [x("batch", "time", 4)], {"axis": 2}), "NM4", LEFT).pointwise


def test_a_norm_of_nan_leaves_no_padding_zero() -> None:
    verdict = check(Node("LpNormalization", [Operand(("batch", "time"), valid=ANYTHING)], {"axis": 1}), "NM4", LEFT)
    assert verdict.outputs[0].content({1}) == ANYTHING


def test_batch_normalization_is_a_line_per_channel() -> None:
    parameters = [GAMMA, BETA, constant([1.0, 2.0, 3.0, 4.0]), constant([1.0, 4.0, 9.0, 16.0])]
    node = Node("BatchNormalization", [x("batch", 4, "time", padding=FINITE), *parameters])
    verdict = check(node, "NM3", f"{ROWS}, 2: [time, left]")
    assert verdict.pointwise and not verdict.needs
    held = verdict.outputs[0].padding(2)
    assert held.low == pytest.approx(-4.0, abs=0.01) and held.high == pytest.approx(7.75, abs=0.01)
    node = Node("BatchNormalization", [x("batch", 4, "time"), *parameters])
    assert check(node, "NM3", f"{ROWS}, 2: [time, left]").outputs[0].padding(2) == ANYTHING


def test_local_response_normalization() -> None:
    node = Node("LRN", [x("batch", 5, "time", 2, padding=FINITE)], {"size": 3, "bias": 0.5})
    verdict = check(node, "NM5", f"{ROWS}, 2: [time, left]")
    assert verdict.outputs[0].padding(2).magnitude == pytest.approx(5 / 0.5**0.75, rel=1e-3)


REFUSED = [
    (Node("Softmax", [x("batch", 3)], {"axis": 0}), "acts along the batch axis"),
    (Node("Softmax", [x("batch", 3)], opset=12), "no rule for operator Softmax of opset 12"),
    (Node("Softmax", [x("batch", "2*time", a1=FRAMES_OF_CHANNELS)]), "which a Reshape merged"),
    (Node("Softmax", [x(3, "time")]), "needs a mask on a value"),
    (Node("LayerNormalization", [x("batch", 4), GAMMA], {"axis": 0}), "reduces over the batch axis"),
    (Node("LayerNormalization", [x("batch", "time", 4), x("batch", 1, 4)]), "padded parameters"),
    (Node("InstanceNormalization", [x("batch", "time", 3), x("time"), x("time")]), "padded"),
    (Node("BatchNormalization", [x(3, "batch", 2), *[x("batch")] * 4]), "padded parameters"),
    (Node("MeanVarianceNormalization", [x("batch", 4, 3)], {"axes": [0, 2]}), "reduces over the batch axis"),
    (Node("LpNormalization", [x("batch", 4)], {"axis": 0}), "acts along the batch axis"),
    (Node("InstanceNormalization", [x(1, 4, "time", padding=ZERO), GAMMA, BETA]), "that all rows share"),
    (
        Node("BatchNormalization", [x("batch", 4), *[GAMMA] * 4], {"training_mode": 1}, outputs=3), "in training mode",
    ),
    (Node("LayerNormalization", [x("batch", "time", 4), GAMMA], outputs=2), "mean or deviation"),
    (Node("GroupNormalization", [x("batch", "channels", 3), GAMMA, BETA], {"num_groups": 2}, opset=21), "channels"),
    (Node("LRN", [x("batch", "time", 3, 2)], {"size": 3}), "padded channels"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


def drawn(rng: np.random.Generator) -> Node:
    """A softmax or normalisation over random axes of random layouts and contents."""
    contents = [FINITE, ANYTHING, ZERO, ONE, MASKED, DEEP, Interval(-1e30, 1e30), Interval(0.0, math.inf)]
    pool: dict[str | int, Axis | None] = {
        "time": None, "key": None, "time + 3": WINDOW, "2*time - 1": CENTERED, 3: None, 2: None,
        "2*time": FRAMES_OF_CHANNELS,
    }  # fmt: skip
    dims: list[str | int] = [ROWS_OF[int(rng.integers(3))], 4]
    axes: dict[int, Axis] = {}
    for at in range(2, int(rng.integers(3, 5))):
        dim = list(pool)[int(rng.integers(len(pool)))]
        dims.append(dim)
        layout = pool[dim]
        if layout is not None:
            axes[at] = layout
    kind = int(rng.integers(5))
    valid = contents[int(rng.integers(5))] if kind < 3 and rng.random() < 0.3 else FINITE
    regions = [frozenset(at for at in range(2, len(dims)) if bits >> at & 1) for bits in range(4, 1 << len(dims), 4)]
    padding = {region: contents[int(rng.integers(len(contents)))] for region in regions}
    operand = Operand(tuple(dims), valid=valid, padding=padding, axes=axes)
    right = ["key"] if rng.random() < 0.2 else []
    more = {"right": right, "most": {"time": 4, "key": 4}, "least": {"time": 2, "key": 2}}
    axis = int(rng.integers(1, len(dims)))
    match kind:
        case 0 | 1 | 2:
            op = ["Softmax", "LogSoftmax", "Hardmax"][int(rng.integers(3))]
            return Node(op, [operand], {"axis": axis}, **more)  # type: ignore[arg-type]
        case 3:
            parameters = [constant(rng.standard_normal(4)) for _ in range(2)]
            return Node("InstanceNormalization", [operand, *parameters], **more)  # type: ignore[arg-type]
    scale = constant(rng.standard_normal(1))
    return Node("LayerNormalization", [operand, scale], {"axis": axis}, **more)  # type: ignore[arg-type]


def test_random_normalizations() -> None:
    attack(drawn, draws=100, fewest=50, extremes=False, tolerance=1e-4)
