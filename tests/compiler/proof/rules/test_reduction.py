"""Rules RD and RN3: padding is neutral or loses, means count what is valid, and every claim holds under attack."""

import dataclasses
import math

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.facts import NO_NAN, Fill, Index
from compiler.proof.facts.interval import ANYTHING, ONE, TRUTH, ZERO, Interval
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, joined
from tests.kit.judged import attack, check, check_refused, integers, layouts, rewrites
from tests.kit.soundness import Node, Operand, check_node, constant, number

BATCH, TIME = graphs.symbol("batch"), graphs.symbol("time")
ROWS = "0: rows(batch)"
LEFT = f"{ROWS}, 1: [time, left]"
FINITE = Interval(-3.0, 5.0)
POSITIVE = Interval(0.0, 5.0)
MASKED = Interval(-math.inf, 9.0)
LOWEST, HIGHEST = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)
WINDOW = joined([Segment(TIME, Side.RIGHT), Segment(3)])
CENTERED = joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)])
ROWS_OF: list[str | int] = ["batch", "2*batch", 1]
FRAMES_OF_CHANNELS = (Plain(2), Frames((Segment(TIME),)))
INT = ir.DataType.INT64


def x(
    *shape: int | str,
    padding: Interval = ANYTHING,
    valid: Interval | None = FINITE,
    dtype: ir.DataType = ir.DataType.FLOAT,
    **axes: Axis,
) -> Operand:
    return Operand(shape, dtype, valid, padding, {int(at[1:]): axis for at, axis in axes.items()})


def reduced(op: str, operand: Operand, *axes: int, opset: int = 20, keepdims: int = 1, **more: object) -> Node:
    as_input = opset >= (13 if op == "ReduceSum" else 18)
    attributes: dict[str, object] = {"keepdims": keepdims} if as_input else {"keepdims": keepdims, "axes": list(axes)}
    return Node(op, [operand, integers(*axes)] if as_input else [operand], attributes, opset=opset, **more)  # type: ignore[arg-type]


def fills(node: Node, rule: str, axes: str) -> list[tuple[int, float]]:
    verdict = check(node, rule, axes, extremes=False)
    return [(need.axis, need.value) for need in verdict.needs if isinstance(need, Fill)]


OPS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@pytest.mark.parametrize("opset", [17, 18, 23])
@pytest.mark.parametrize("op", OPS)
def test_reductions_of_other_axes_need_nothing(op: str, opset: int) -> None:
    positive = x("batch", "time", 4, padding=POSITIVE, valid=POSITIVE)
    verdict = check(reduced(f"Reduce{op}", positive, -1, opset=opset, keepdims=0), "RD1", LEFT, extremes=False)
    assert verdict.pointwise and not verdict.needs
    check(reduced(f"Reduce{op}", x("batch", 4, "time"), 1, opset=opset), "RD1", f"{ROWS}, 2: [time, left]")


NEUTRAL = {
    "L1": 0.0, "L2": 0.0, "LogSum": 0.0, "LogSumExp": LOWEST, "Max": LOWEST, "Mean": 0.0, "Min": HIGHEST, "Prod": 1.0,
    "Sum": 0.0, "SumSquare": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("opset", [17, 18, 23])
@pytest.mark.parametrize("op", OPS)
def test_reductions_of_padded_axes_get_what_is_neutral(op: str, opset: int) -> None:
    node = reduced(f"Reduce{op}", x("batch", "time", 4, valid=POSITIVE), 1, opset=opset, keepdims=0)
    assert fills(node, "RD2", ROWS) == [(1, NEUTRAL[op])]
    verdict = check(node, "RD2", ROWS, extremes=False)
    assert rewrites(verdict) == (["mean"] if op == "Mean" else [])
    assert bool(verdict.at_least_one) == (op in ("LogSum", "LogSumExp", "Max", "Mean", "Min"))
    assert not verdict.pointwise


@pytest.mark.parametrize("op", ["LogSumExp", "Max", "Mean", "Min"])
def test_what_has_no_result_of_nothing_needs_an_entry(op: str) -> None:
    verdict = check(reduced(f"Reduce{op}", x("batch", "time - 2", 4, valid=POSITIVE), 1), "RD2", ROWS, extremes=False)
    assert verdict.at_least_one == (TIME - 2,)


BELOW, ABOVE = Interval(-9.0, -3.0), Interval(5.0, math.inf)
NEUTRAL_ALREADY = [
    ("Max", BELOW, FINITE), ("Max", Interval(-math.inf, -3.0), FINITE), ("Min", ABOVE, FINITE), ("Sum", ZERO, FINITE),
    ("Prod", ONE, FINITE), ("Mean", ZERO, FINITE), ("LogSumExp", Interval(-math.inf, -1e30), FINITE),
    ("LogSumExp", Interval(-math.inf, -math.inf), MASKED), ("L2", ZERO, FINITE),
]  # fmt: skip


@pytest.mark.parametrize(("op", "padding", "valid"), NEUTRAL_ALREADY)
def test_what_is_neutral_already_is_left_alone(op: str, padding: Interval, valid: Interval) -> None:
    node = reduced(f"Reduce{op}", x("batch", "time", 4, padding=padding, valid=valid), 1)
    assert fills(node, "RD2", ROWS) == []
    almost = dataclasses.replace(padding, nan=True)
    node = reduced(f"Reduce{op}", x("batch", "time", 4, padding=almost, valid=valid), 1)
    assert len(fills(node, "RD2", ROWS)) == 1


def test_scores_that_may_be_infinite_are_searched_with_infinity() -> None:
    for op, valid, fill in (
        ("ReduceMax", MASKED, -math.inf),
        ("ReduceLogSumExp", MASKED, -math.inf),
        ("ReduceMin", Interval(0.0, math.inf), math.inf),
    ):
        assert fills(reduced(op, x("batch", "time", valid=valid), 1), "RD2", ROWS) == [(1, fill)]


def test_whole_numbers_have_ends_of_their_own() -> None:
    for dtype in (INT, ir.DataType.INT32, ir.DataType.UINT8, ir.DataType.INT8):
        ends = np.iinfo(dtype.numpy())
        for op, fill in (("ReduceMax", ends.min), ("ReduceMin", ends.max)):
            operand = x("batch", "time", valid=None, dtype=dtype)
            verdict = check(reduced(op, operand, 1), "RD2", ROWS)
            (need,) = verdict.needs
            assert isinstance(need, Fill) and int(need.value) == fill


def test_contents_of_results() -> None:
    def content(op: str, given: Interval, *, dtype: ir.DataType = ir.DataType.FLOAT, size: int = 4) -> Interval:
        operand = x("batch", "time", size, padding=given, valid=given, dtype=dtype)
        return check(reduced(op, operand, 2), "RD1", LEFT, extremes=False).outputs[0].padding(1)

    assert content("ReduceSum", ONE) == Interval(4.0, 4.0)
    assert content("ReduceSum", ZERO) == ZERO
    assert content("ReduceMax", ONE) == ONE
    assert content("ReduceMin", TRUTH) == TRUTH
    assert content("ReduceProd", TRUTH) == TRUTH
    assert content("ReduceProd", ONE) == ONE
    assert content("ReduceMean", ZERO) == ZERO
    assert content("ReduceMean", FINITE).magnitude == pytest.approx(5.0, rel=1e-3)
    assert content("ReduceSum", FINITE).high == pytest.approx(20.0, rel=1e-3)
    assert content("ReduceL2", FINITE).high == pytest.approx(10.0, rel=1e-3)
    assert content("ReduceSum", Interval(-1e37, 1e37)) == ANYTHING
    assert content("ReduceSumSquare", Interval(-1e30, 1e30)) == Interval(0.0, math.inf)
    assert content("ReduceSum", ANYTHING) == ANYTHING


def test_a_sum_of_positive_entries_has_at_least_one() -> None:
    mask = x("batch", "time", valid=ONE, padding=ZERO, dtype=INT)
    verdict = check(reduced("ReduceSum", mask, 1, keepdims=0), "RD2", "0: rows(batch)")
    assert verdict.outputs[0].valid.low == 1.0
    assert [str(size) for size in verdict.at_least_one] == ["time"]
    signs = x("batch", "time", valid=TRUTH, padding=ZERO, dtype=INT)
    assert check_node(reduced("ReduceSum", signs, 1, keepdims=0)).at_least_one == ()


MEANS = {
    "dropped": (reduced("ReduceMean", x("batch", "time", 4), 1, keepdims=0), ROWS),
    "kept": (reduced("ReduceMean", x("batch", "time", 4), 1), ROWS),
    "before opset 18": (reduced("ReduceMean", x("batch", "time", 4), 1, opset=17, keepdims=0), ROWS),
    "two axes": (reduced("ReduceMean", x("batch", 3, "time"), 1, 2, keepdims=0), ROWS),
    "two padded axes": (reduced("ReduceMean", x("batch", "key", 3, "time"), 1, -1), ROWS),
    "one of two padded axes": (reduced("ReduceMean", x("batch", "time", "key"), 2, keepdims=0), LEFT),
    "batch behind": (reduced("ReduceMean", x("time", "batch", 4), 0, keepdims=0), ROWS),
    "batch behind, kept": (reduced("ReduceMean", x("time", "batch", 4), 0), "1: rows(batch)"),
    "right-aligned": (reduced("ReduceMean", x("batch", "time", 4), 1, right=["time"]), ROWS),
    "a window": (reduced("ReduceMean", x("batch", "time + 3", 4, a1=WINDOW), 1), ROWS),
    "segments": (reduced("ReduceMean", x("batch", "2*time - 1", 4, a1=CENTERED), 1, keepdims=0), ROWS),
    "merged with channels": (reduced("ReduceMean", x("batch", "2*time", a1=FRAMES_OF_CHANNELS), 1), ROWS),
    "rows merged with heads": (reduced("ReduceMean", x("2*batch", "time", 4), 1), "0: rows(batch) * 2"),
    "rows merged with heads, in front": (
        reduced("ReduceMean", x("time", "2*batch", a1=(Plain(2), Rows(BATCH))), 0, keepdims=0), "0: 2 * rows(batch)",
    ),
    "rows merged with frames": (
        reduced("ReduceMean", x("batch*key", "time", a0=(Rows(BATCH), Frames((Segment(graphs.symbol("key")),)))), 1),
        "0: rows(batch) * [key, left]",
    ),
    "a shared value": (reduced("ReduceMean", x(1, "time", 4), 1), ROWS),
    "integers": (reduced("ReduceMean", x("batch", "time", valid=Interval(-50, 50), dtype=INT), 1), ROWS),
    "a pool": (Node("GlobalAveragePool", [x("batch", 3, "time", "key")]), ROWS),
    "half precision": (reduced("ReduceMean", x("batch", "time", 4, dtype=ir.DataType.FLOAT16), 1), ROWS),
}  # fmt: skip


@pytest.mark.parametrize(("node", "axes"), MEANS.values(), ids=MEANS)
def test_means_count_what_is_valid(node: Node, axes: str) -> None:
    half = node.operands[0] is not None and node.operands[0].dtype == ir.DataType.FLOAT16
    verdict = check_node(node, trials=8, tolerance=2e-3 if half else 1e-5)
    assert (verdict.rule, layouts(verdict), rewrites(verdict)) == ("RD2", axes, ["mean"])
    assert all(isinstance(need, Fill) and need.value == 0.0 for need in verdict.needs[:-1])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_pools_of_powers(p: int) -> None:
    pool = Node("GlobalLpPool", [x("batch", 3, "time", "key", valid=None)], {"p": p})
    assert fills(pool, "RD2", ROWS) == [(2, 0.0), (3, 0.0)]
    zeros = Node("GlobalLpPool", [x("batch", 3, "time", padding=ZERO)], {"p": p})
    assert not fills(zeros, "RD2", ROWS)
    assert check(Node("GlobalLpPool", [x("batch", 3, 4)], {"p": p}), "RD1", ROWS, extremes=False).pointwise
    check_refused(Node("GlobalLpPool", [x("batch", 3, "time")], {"p": 0}), "no neutral entry")


def test_means_of_rows_in_the_padding_of_another_axis() -> None:
    regions = {frozenset({1}): FINITE, frozenset({2}): ANYTHING, frozenset({1, 2}): ANYTHING}
    operand = Operand(("batch", "time", "key"), valid=FINITE, padding=regions)
    (out,) = check(reduced("ReduceMean", operand, 2, keepdims=0), "RD2", LEFT, extremes=False).outputs
    assert out.padding(1).is_finite and out.padding(1).magnitude == pytest.approx(5.0, rel=1e-3)
    regions = {frozenset({1}): FINITE, frozenset({2}): ZERO, frozenset({1, 2}): ANYTHING}
    operand = Operand(("batch", "time", "key"), valid=FINITE, padding=regions)
    verdict = check(reduced("ReduceMean", operand, 2, keepdims=0), "RD2", LEFT, extremes=False)
    assert rewrites(verdict) == ["mean"] and len(verdict.needs) == 1
    assert verdict.outputs[0].padding(1) == ANYTHING


SEARCHES = {
    "largest": (Node("ArgMax", [x("batch", "time", 3)], {"axis": 1}), [(1, LOWEST)]),
    "smallest": (Node("ArgMin", [x("batch", "time", 3)], {"axis": 1, "keepdims": 0}), [(1, HIGHEST)]),
    "infinite scores": (Node("ArgMax", [x("batch", "time", valid=MASKED)], {"axis": 1}), [(1, -math.inf)]),
    "the last one": (Node("ArgMax", [x("batch", "time")], {"axis": 1, "select_last_index": 1}), [(1, LOWEST)]),
    "padding that loses": (Node("ArgMax", [x("batch", "time", padding=BELOW)], {"axis": 1}), []),
    "padding that ties": (
        Node("ArgMax", [x("batch", "time", padding=Interval(-3.0, -3.0))], {"axis": 1, "select_last_index": 1}),
        [(1, LOWEST)],
    ),
    "whole numbers": (
        Node("ArgMax", [x("batch", "time", valid=None, dtype=ir.DataType.INT32)], {"axis": 1}), [(1, -(2**31))],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("node", "expected"), SEARCHES.values(), ids=SEARCHES)
def test_padding_never_wins_a_search(node: Node, expected: list[tuple[int, float]]) -> None:
    assert fills(node, "RD5", ROWS) == expected


def test_searches_along_other_axes() -> None:
    verdict = check(Node("ArgMax", [x("batch", "time", 5)], {"axis": -1, "keepdims": 0}), "RD5", LEFT)
    assert verdict.pointwise and verdict.outputs[0].padding(1) == Interval(0.0, 4.0)


def test_top_k() -> None:
    verdict = check(Node("TopK", [x("batch", "time", 5, padding=FINITE), integers(2)], outputs=2), "RD6", LEFT)
    assert verdict.pointwise and verdict.outputs[1].padding(1) == Interval(0.0, 4.0)
    node = Node("TopK", [x("batch", "time", 3), integers(2)], {"axis": 1}, outputs=2)
    assert fills(node, "RD6", ROWS) == [(1, LOWEST)]
    assert check(node, "RD6", ROWS, extremes=False).at_least_one == (TIME - 1,)
    node = Node("TopK", [x("batch", "time", 3, valid=MASKED), integers(1)], {"axis": 1, "largest": 0}, outputs=2)
    assert fills(node, "RD6", ROWS) == [(1, math.inf)]


def test_top_k_of_padded_frames_in_rows_of_padding() -> None:
    operand = x("batch", "time", "late", padding=ANYTHING)
    node = Node("TopK", [operand, integers(2)], {"axis": 2}, outputs=2, least={"late": 2})
    assert check(node, "RD6", LEFT).outputs[0].valid == FINITE


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_which_of_several_nan_wins_differs_between_one_row_and_many(op: str) -> None:
    """Kernels take other paths where nothing is left in front of what is reduced."""
    free = x("batch", 5, 4, valid=ANYTHING)
    assert check(reduced(op, free, 1), "RD1", ROWS, extremes=False).assumes == NO_NAN
    assert not check(reduced(op, x("batch", 5, 4), 1), "RD1", ROWS).assumes
    assert not check(reduced(op, free, 2), "RD1", ROWS).assumes
    assert not check(reduced(op, x("batch", 3, 5, 4, valid=ANYTHING), 2), "RD1", ROWS).assumes
    assert check(reduced(op, x("batch", "time", 5, 4, valid=ANYTHING), 2), "RD1", LEFT, extremes=False).assumes


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_of_truth(op: str) -> None:
    operand = x("batch", "time", 4, valid=TRUTH, padding=TRUTH, dtype=ir.DataType.BOOL)
    assert fills(reduced(op, operand, 1, opset=20), "RD2", ROWS) == [(1, 0.0 if op == "ReduceMax" else 1.0)]


def cumulative(operand: Operand, axis: int = 1, right: bool = False, **attributes: int) -> Node:
    return Node("CumSum", [operand, constant(axis, np.int64)], attributes, right=["time"] if right else [])


def test_sums_so_far_need_nothing_from_the_valid_side() -> None:
    for node in (
        cumulative(x("batch", "time", 3)),
        cumulative(x("batch", "time"), exclusive=1),
        cumulative(x("batch", "time"), right=True, reverse=1),
    ):
        verdict = check_node(node, trials=8)
        assert verdict.rule == "RN3" and not verdict.needs and not verdict.pointwise
    assert check(cumulative(x("batch", "time", 3), 2), "RN3", LEFT, extremes=False).pointwise


def test_sums_so_far_from_the_other_side_start_at_zero() -> None:
    for node in (
        cumulative(x("batch", "time"), reverse=1),
        cumulative(x("batch", "time"), right=True, exclusive=1),
        cumulative(x("batch", "2*time - 1", a1=CENTERED)),
    ):
        verdict = check_node(node, trials=8)
        assert [need.value for need in verdict.needs if isinstance(need, Fill)] == [0.0]
    assert not check_node(cumulative(x("batch", "time", padding=ZERO), reverse=1)).needs


def test_sums_of_ones_are_positions() -> None:
    ones = x("batch", "time", padding=ONE, valid=ONE, dtype=INT)
    assert check(cumulative(ones), "RN3", LEFT).outputs[0].index == Index(1, 1)
    assert check(cumulative(ones, exclusive=1), "RN3", LEFT).outputs[0].index == Index(1, 0)
    mask = x("batch", "time", padding=ZERO, valid=ONE, dtype=INT)
    assert check(cumulative(mask), "RN3", LEFT).outputs[0].index is None


def test_sums_of_zeros_stay_zero_whatever_the_padding() -> None:
    (out,) = check(cumulative(x("batch", "time", valid=ZERO, dtype=INT)), "RN3", LEFT).outputs
    assert out.valid == ZERO and out.padding(1) != ZERO


REFUSED = [
    (reduced("ReduceSum", x("batch", 3), 0), "reduces over the batch axis"),
    (reduced("ReduceMax", x("2*batch", "time"), 0, 1), "reduces over the batch axis"),
    (Node("ReduceMean", [x("batch", 3)]), "reduces over the batch axis"),
    (reduced("ReduceSum", x(1, "time"), 0, 1), "reduces over the batch axis"),
    (reduced("ReduceMean", x(1, "time", padding=ZERO), 1), "that all rows share"),
    (reduced("ReduceSum", x("time", 3), 0), "needs a mask on a value"),
    (Node("ReduceSum", [x("batch", "time")], {"noop_with_empty_axes": 1}), "over no axis"),
    (Node("ReduceSum", [x("batch", "time"), Operand((1,), INT)]), "with computed axes"),
    (Node("ArgMax", [x("batch", 3)], {"axis": 0}), "acts along the batch axis"),
    (Node("ArgMax", [x("batch", "time")], {"axis": 1}, right=["time"]), "where entries have other positions"),
    (Node("TopK", [x("batch", "time"), number("time", shape=(1,))], outputs=2), "uses an axis length"),
    (Node("TopK", [x("batch", "time"), integers(2)], {"sorted": 0}, outputs=2), "in no order"),
    (cumulative(x("batch", "time"), 0), "acts along the batch axis"),
    (Node("CumSum", [x("batch", "time"), Operand((), INT)]), "with computed axis"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


def drawn(rng: np.random.Generator) -> Node:
    """A reduction, search or sum over random axes of random layouts and contents."""
    contents = [FINITE, ANYTHING, ZERO, ONE, POSITIVE, BELOW, ABOVE, MASKED, Interval(-1e38, 1e38)]
    pool: dict[str | int, Axis | None] = {
        "time": None, "key": None, "time + 3": WINDOW, "2*time - 1": CENTERED, 3: None, "2*time": FRAMES_OF_CHANNELS,
    }  # fmt: skip
    dims: list[str | int] = [ROWS_OF[int(rng.integers(3))]]
    axes: dict[int, Axis] = {}
    for at in range(1, int(rng.integers(2, 5))):
        dims.append(list(pool)[int(rng.integers(len(pool)))])
        layout = pool[dims[-1]]
        if layout is not None:
            axes[at] = layout
    rank = len(dims)
    regions = [frozenset(at for at in range(1, rank) if bits >> at & 1) for bits in range(2, 1 << rank, 2)]
    padding = {region: contents[int(rng.integers(len(contents)))] for region in regions}
    valid = [FINITE, POSITIVE, ZERO, ONE][int(rng.integers(4))]
    dtype = INT if rng.random() < 0.2 else ir.DataType.FLOAT
    operand = Operand(tuple(dims), dtype, valid, padding, axes)
    right = ["key"] if rng.random() < 0.3 else []
    more = {"right": right, "most": {"time": 4, "key": 4}}
    axis = int(rng.integers(1, rank))
    match int(rng.integers(8)):
        case 0:
            signs = {"axis": axis, "select_last_index": int(rng.integers(2)), "keepdims": int(rng.integers(2))}
            return Node(["ArgMax", "ArgMin"][int(rng.integers(2))], [operand], signs, **more)  # type: ignore[arg-type]
        case 1:
            signs = {"axis": axis, "largest": int(rng.integers(2))}
            return Node("TopK", [operand, integers(1)], signs, outputs=2, **more)  # type: ignore[arg-type]
        case 2:
            signs = {"reverse": int(rng.integers(2)), "exclusive": int(rng.integers(2))}
            return Node("CumSum", [operand, constant(axis, np.int64)], signs, **more)  # type: ignore[arg-type]
    picked = [at for at in range(1, rank) if rng.random() < 0.6] or [axis]
    op = [each for each in OPS if dtype != INT or each in ("Max", "Min", "Sum", "Prod", "Mean")]
    opset, keepdims = int(rng.choice([17, 18, 23])), int(rng.integers(2))
    return reduced(f"Reduce{op[int(rng.integers(len(op)))]}", operand, *picked, opset=opset, keepdims=keepdims, **more)


def test_random_reductions() -> None:
    attack(drawn, draws=90, fewest=50, extremes=False)
