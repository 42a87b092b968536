"""Rule EW5 under attack: comparisons of contents, of positions and of positions with lengths; logic."""

import math

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.model import symbol
from compiler.proof.facts.facts import Index
from compiler.proof.facts.interval import ANYTHING, ONE, TRUTH, ZERO, Interval
from compiler.proof.facts.interval import constant as exactly
from compiler.proof.facts.layout import Frames, Segment, Side
from compiler.proof.rules.comparison import DECISIONS
from tests.kit.judged import check_refused, rewrites
from tests.kit.soundness import Node, Operand, check_node, constant, number

BOOL, FLOAT, INT64 = ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT64
COUNTED = Interval(-(2.0**31), 2.0**31)


def positions(*shape: int | str, axis: int = 0, offset: int = 0, right: bool = False) -> Operand:
    return Operand(shape, INT64, COUNTED, COUNTED, index=Index(axis, offset))


CAUSAL = [
    ("LessOrEqual", 0, {1: ZERO, 0: ONE}),
    ("LessOrEqual", 1, {1: TRUTH, 0: ONE}),
    ("LessOrEqual", -1, {1: ZERO, 0: ONE}),
    ("Less", 0, {1: ZERO, 0: ONE}),
    ("Less", 1, {1: ZERO, 0: ONE}),
    ("Greater", 0, {1: ONE, 0: ZERO}),
    ("Greater", -1, {1: ONE, 0: ZERO}),
    ("GreaterOrEqual", 0, {1: ONE, 0: ZERO}),
    ("Equal", 0, {1: ZERO, 0: ZERO}),
    ("Equal", 3, {1: TRUTH, 0: ZERO}),
]


@pytest.mark.parametrize(("op", "offset", "expected"), CAUSAL)
def test_key_against_query_is_decided_where_one_of_them_is_padding(
    op: str, offset: int, expected: dict[int, Interval]
) -> None:
    """Key <op> query + offset; axis 1 holds keys."""
    node = Node(op, [positions("time"), positions("time", 1, offset=offset)])
    fact = check_node(node, trials=16).outputs[0]
    assert {axis: fact.content({axis}) for axis in (0, 1)} == expected


def test_axes_of_other_sizes_are_compared_by_their_sizes() -> None:
    node = Node("LessOrEqual", [positions("2*time"), positions("time", 1)])
    assert check_node(node, trials=16).outputs[0].content({1}) == ZERO


def test_positions_of_right_aligned_axes_are_below_the_first_in_the_padding() -> None:
    key = Operand(("batch", 1, "cache"), INT64, COUNTED, COUNTED, index=Index(2))
    query = Operand(("batch", "cache", 1), INT64, COUNTED, COUNTED, index=Index(1))
    fact = check_node(Node("Less", [key, query], right=["cache"]), trials=16).outputs[0]
    assert (fact.content({2}), fact.content({1})) == (ONE, ZERO)


def test_positions_around_a_fixed_one_are_shared_by_rows_of_all_lengths() -> None:
    size, time = "2*time - 1", symbol("time")
    centered = (Frames((Segment(time - 1, Side.RIGHT), Segment(time, Side.LEFT))),)
    around = Operand((size,), INT64, COUNTED, COUNTED, axes={0: centered}, index=Index(0, 1 - time))
    assert check_node(Node("Less", [around, number("time")]), trials=16).outputs[0].valid == ONE
    assert check_node(Node("Greater", [around, constant(0, np.int64)]), trials=16).outputs[0].valid == TRUTH


@pytest.mark.parametrize(
    ("op", "size", "expected"),
    [
        ("Less", "time", ONE),
        ("GreaterOrEqual", "time", ZERO),
        ("LessOrEqual", "time - 1", ONE),
        ("Equal", "time", ZERO),
    ],
)
def test_positions_against_the_length_of_their_axis(op: str, size: str, expected: Interval) -> None:
    verdict = check_node(Node(op, [positions("time"), number(size)]), trials=12)
    assert verdict.outputs[0].anywhere == expected and not verdict.needs
    swapped = {"Less": "Greater", "GreaterOrEqual": "LessOrEqual", "LessOrEqual": "GreaterOrEqual"}.get(op, op)
    assert check_node(Node(swapped, [number(size), positions("time")]), trials=12).outputs[0].anywhere == expected


def test_positions_against_half_the_length_are_one_comparison_per_row() -> None:
    """Shared positions stay a number, for rows have different answers; with the batch they are compared per row."""
    assert check_node(Node("Less", [positions("time"), number("time//2")])).outputs[0].is_number
    per_row = Operand(("batch", "time"), INT64, COUNTED, COUNTED, index=Index(1))
    verdict = check_node(Node("Less", [per_row, number("time//2")]), trials=12)
    assert rewrites(verdict) == ["number"]


def test_positions_against_constants() -> None:
    counted = Operand(("time",), INT64, Interval(0.0, 2.0**31), Interval(0.0, 2.0**31), index=Index(0))
    assert check_node(Node("GreaterOrEqual", [counted, constant(0, np.int64)])).outputs[0].anywhere == ONE
    assert check_node(Node("Less", [counted, constant(3, np.int64)])).outputs[0].anywhere == TRUTH


def test_several_lengths_among_rows_are_refused() -> None:
    data = Operand(("batch", "time"), FLOAT)
    check_refused(Node("Less", [data, number("batch", FLOAT)]), "batch size")


CONTENTS = [ZERO, exactly(0.1), Interval(0.0, 1.0), Interval(2.5, 3.0), ANYTHING, exactly(math.inf)]


@pytest.mark.parametrize("op", DECISIONS)
def test_contents_decide_when_they_are_apart(op: str) -> None:
    """Every pair of contents, in the padding of floats and of integers."""
    for a in CONTENTS:
        for b in CONTENTS:
            operands = [Operand(("batch", "time"), padding=content, valid=Interval(-2.0, 2.0)) for content in (a, b)]
            fact = check_node(Node(op, operands), trials=1, extremes=True).outputs[0]
            sure = fact.content({1}) != TRUTH
            assert sure or not (a.is_constant and b.is_constant)
            assert not sure or not (a.nan or b.nan)
    large = Operand(("batch", "time"), INT64, padding=exactly(2.0**60))
    assert check_node(Node(op, [large, constant(2**60, np.int64)])).outputs[0].content({1}) == TRUTH


def test_floats_that_touch_decide_nothing() -> None:
    touching = [Operand(("batch", "time"), padding=Interval(*ends)) for ends in ((0.1, 0.3), (0.3, 0.6))]
    assert check_node(Node("LessOrEqual", touching)).outputs[0].content({1}) == TRUTH


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("And", ZERO, TRUTH, ZERO), ("And", ONE, ONE, ONE), ("And", ONE, TRUTH, TRUTH), ("Or", ONE, TRUTH, ONE),
        ("Or", ZERO, ZERO, ZERO), ("Or", ZERO, TRUTH, TRUTH), ("Xor", ONE, ZERO, ONE), ("Xor", ONE, ONE, ZERO),
        ("Xor", ONE, TRUTH, TRUTH),
    ],
)  # fmt: skip
def test_logic(op: str, a: Interval, b: Interval, expected: Interval) -> None:
    operands = [Operand(("batch", "time"), BOOL, padding=content) for content in (a, b)]
    assert check_node(Node(op, operands)).outputs[0].content({1}) == expected
