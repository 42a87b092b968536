"""Rules CC, SL and SP: segments are joined, and cut where slots and positions agree; every claim holds under attack."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.facts import Index
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from compiler.proof.facts.layout import Axis, Segment, Side, joined, size_of
from compiler.proof.propagation.propagate import Axes, input_facts, propagate
from tests.kit.graphs import parse
from tests.kit.judged import attack, check, check_refused, integers, rewrites
from tests.kit.soundness import Node, Operand, constant, number

TIME, CACHE = graphs.symbol("time"), graphs.symbol("cache")
END = 2**63 - 1
LEFT, RIGHT = joined([Segment(TIME)]), joined([Segment(TIME, Side.RIGHT)])
CENTERED = joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)])
WITH_NEW = joined([Segment(CACHE, Side.RIGHT), Segment(TIME)])
GAP = joined([Segment(TIME), Segment(2)])
AHEAD = joined([Segment(TIME + 4, Side.RIGHT), Segment(TIME + 3)])
ROWS = "0: rows(batch)"


def along(axis: Axis, channels: int = 3) -> Operand:
    return Operand(("batch", str(size_of(axis)), channels), axes={1: axis})


def fixed(size: int, channels: int = 3) -> Operand:
    return Operand(("batch", size, channels))


JOINED = {
    "cache and new frames": ([along(RIGHT), fixed(2)], 1, "1: [time + 2, right]"),
    "a first token": ([fixed(1), along(LEFT)], -2, "1: [time + 1, left]"),
    "a last token": ([along(LEFT), fixed(1)], 1, "1: [time, left] ++ [1]"),
    "a zero column": ([fixed(1), along(CENTERED)], 1, "1: [1] ++ [time, right] ++ [time - 1, left]"),
    "two windows": ([along(RIGHT), along(RIGHT)], 1, "1: [time, right] ++ [time, right]"),
    "left and right meet": ([along(RIGHT), along(LEFT)], 1, "1: [time, right] ++ [time, left]"),
    "channels": ([along(LEFT), along(LEFT, 2)], 2, "1: [time, left]"),
    "fixed entries": ([fixed(1), fixed(2)], 1, ""),
}


@pytest.mark.parametrize(("operands", "axis", "axes"), JOINED.values(), ids=JOINED)
def test_joined(operands: list[Operand], axis: int, axes: str) -> None:
    padded = "left" in axes or "right" in axes
    rule = "CC1" if padded and axis != 2 else "CC2"
    verdict = check(Node("Concat", operands, {"axis": axis}), rule, f"{ROWS}, {axes}" if axes else ROWS)
    assert verdict.pointwise == (rule == "CC2")


BEHIND = {
    "a number": (ir.DataType.FLOAT, -1.5, "1: [time + 2, left]"),
    "infinities": (ir.DataType.FLOAT, -np.inf, "1: [time + 2, left]"),
    "flags": (ir.DataType.BOOL, 1.0, "1: [time + 2, left]"),
    "whole numbers": (ir.DataType.INT64, 0.0, "1: [time + 2, left]"),
    "zeros of either sign": (ir.DataType.FLOAT, 0.0, "1: [time + 2, left]"),
}


@pytest.mark.parametrize("name", BEHIND)
def test_one_number_behind_frames_follows_the_last_of_each_row(name: str) -> None:
    dtype, held, axes = BEHIND[name]
    frames, behind = (Operand(("batch", size, 3), dtype) for size in ("time", 2))
    behind = dataclasses.replace(behind, valid=Interval(held, held))
    check(Node("Concat", [frames, behind], {"axis": 1}), "CC3", f"{ROWS}, {axes}")


def test_zero_padding_of_a_cache_stays_zero() -> None:
    cache = Operand(("batch", "cache", 3), padding=ZERO)
    verdict = check(
        Node("Concat", [cache, fixed(2)], {"axis": 1}, right=["cache"]), "CC1", f"{ROWS}, 1: [cache + 2, right]"
    )
    assert verdict.outputs[0].padding(1).is_zero


def cut(axis: Axis, start: int | str, end: int | str, step: int = 1, **more: int) -> Node:
    bounds = [number(b, shape=(1,)) if isinstance(b, str) else integers(b) for b in (start, end)]
    return Node("Slice", [along(axis), *bounds, integers(1), integers(step)], least=more)


CUT = {
    "drop the first": (cut(LEFT, 1, END), "1: [time - 1, left]"),
    "drop the last": (cut(LEFT, 0, -1), "1: [time - 1, left]"),
    "the first": (cut(LEFT, 0, 1), ""),
    "up to a length": (cut(joined([Segment(2 * TIME)]), 0, "time"), "1: [time, left]"),
    "up to some less": (cut(joined([Segment(2 * TIME)]), 0, "time - 4", time=5), "1: [time - 4, left]"),
    "up to one less": (cut(LEFT, 0, "time - 1"), "1: [time - 1, left]"),
    "whole groups of frames": (cut(joined([Segment(TIME)]), 0, "4*(time//4)", time=4), "1: [4*floor(time/4), left]"),
    "every other": (cut(LEFT, 0, END, 2), "1: [floor(time/2 + 1/2), left]"),
    "every other from the second": (cut(LEFT, 1, END, 2), "1: [floor(time/2), left]"),
    "the newest of a window": (cut(RIGHT, -2, END), "1: [Min(2, time), right]"),
    "a window without its newest": (cut(RIGHT, 0, -1), "1: [time - 1, right]"),
    "the newest, computed": (cut(RIGHT, "time - 2", END, time=2), "1: [Min(2, time), right]"),
    "the newest, never before the first": (cut(RIGHT, "Max(0, time - 2)", END), "1: [Min(2, time), right]"),
    "behind what lies in front of a window": (
        cut(joined([Segment(3), Segment(TIME, Side.RIGHT)]), 2, END),
        "1: [1] ++ [time, right]",
    ),
    "the joined part": (cut(GAP, "time", END), ""),
    "the cached part": (cut(GAP, 0, "time"), "1: [time, left]"),
    "across the border": (cut(GAP, 1, -1), "1: [time - 1, left] ++ [1]"),
    "half of centered positions": (cut(CENTERED, 0, "time"), "1: [time, right]"),
    "centered, without the ends": (cut(CENTERED, 0, -1, time=2), "1: [time - 1, right] ++ [time - 1, left]"),
    "beyond the end": (cut(LEFT, 0, "time + 2"), "1: [time, left]"),
}


@pytest.mark.parametrize(("node", "axes"), CUT.values(), ids=CUT)
def test_cut(node: Node, axes: str) -> None:
    assert not check(node, "SL2", f"{ROWS}, {axes}" if axes else ROWS).pointwise


def test_the_newest_frames_may_be_counted_from_either_end() -> None:
    counted = cut(WITH_NEW, "Max(0, cache + time - 3)", END)
    nodes = [dataclasses.replace(each, right=["cache"]) for each in (counted, cut(WITH_NEW, -3, END))]
    verdicts = [check(node, "SL5", f"{ROWS}, 1: [Min(3, cache + time), right]") for node in nodes]
    assert (verdicts[0].needs, verdicts[0].at_least_one) == (verdicts[1].needs, verdicts[1].at_least_one)


def test_the_window_of_a_state_keeps_its_zeros() -> None:
    joined_ = Operand(("batch", "cache + 2", 3), padding=ZERO)
    node = Node("Slice", [joined_, integers(-4), integers(END), integers(1)], right=["cache"])
    verdict = check(node, "SL2", f"{ROWS}, 1: [Min(4, cache + 2), right]")
    assert verdict.outputs[0].padding(1).is_zero


def test_what_is_cut_off_in_front_of_a_window_lies_in_its_padding() -> None:
    joined_ = Operand(("batch", "cache + 2", 3), padding=ZERO)
    node = Node("Slice", [joined_, integers(1), integers(END), integers(1)], right=["cache"])
    verdict = check(node, "SL2", f"{ROWS}, 1: [cache + 1, right]")
    assert not verdict.outputs[0].padding(1).is_zero


def test_the_last_entries_of_each_row() -> None:
    verdict = check(cut(LEFT, -2, END, time=2), "SL4", ROWS)
    assert rewrites(verdict) == ["entries"]


MET = joined([Segment(CACHE, Side.RIGHT), Segment(TIME)])


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize("padding", [ANYTHING, ZERO], ids=["anything", "zero"])
def test_the_newest_of_a_window_and_a_chunk_are_aligned_again(count: int, padding: Interval) -> None:
    met = Operand(("batch", "cache + time", 3), axes={1: MET}, padding=padding)
    node = Node("Slice", [met, integers(-count), integers(END), integers(1)], right=["cache"])
    verdict = check(node, "SL5", f"{ROWS}, 1: [Min({count}, cache + time), right]")
    assert rewrites(verdict) == ["newest"]
    assert verdict.outputs[0].padding(1).is_zero


def test_the_newest_across_a_gap_are_refused() -> None:
    gap = joined([Segment(CACHE, Side.RIGHT), Segment(TIME), Segment(TIME)])
    met = Operand(("batch", "cache + 2*time", 3), axes={1: gap})
    check_refused(
        Node("Slice", [met, integers(-3), integers(END), integers(1)], right=["cache"]), "Slice [-3:] of [cache, right]"
    )


def test_the_newest_frames_of_a_joined_window_are_all_there() -> None:
    node = Node(
        "Slice", [Operand(("batch", "cache + 2", 3)), integers(-2), integers(END), integers(1)], right=["cache"]
    )
    check(node, "SL2", ROWS)


@pytest.mark.parametrize(("before", "after"), [(RIGHT, "[time, left]"), (GAP, "[2] ++ [time, right]")])
def test_turned_round(before: Axis, after: str) -> None:
    check(cut(before, -1, -END - 1, -1), "SL3", f"{ROWS}, 1: {after}")


def test_positions_move_with_the_start() -> None:
    counted = Interval(0, 2.0**31)
    positions = Operand(("time",), ir.DataType.INT64, counted, counted, index=Index(0))
    verdict = check(
        Node("Slice", [positions, integers(2), integers(END), integers(0)], least={"time": 2}),
        "SL2",
        "0: [time - 2, left]",
    )
    assert verdict.outputs[0].index == Index(0, 2)


ELSEWHERE = [
    Node("Slice", [along(LEFT), integers(1), integers(END), integers(2)]),
    Node("Slice", [along(LEFT), integers(2), integers(0), integers(-1), integers(-1)]),
    Node("Slice", [along(LEFT), integers(0, 0), integers(END, 2), integers(0, 2)]),
]


@pytest.mark.parametrize("node", ELSEWHERE)
def test_cut_elsewhere(node: Node) -> None:
    assert check(node, "SL1", f"{ROWS}, 1: [time, left]").pointwise


def test_split_elsewhere_and_at_borders() -> None:
    check(Node("Split", [along(LEFT, 4)], {"axis": 2, "num_outputs": 2}, outputs=2), "SP1", f"{ROWS}, 1: [time, left]")
    sized = Node("Split", [along(GAP, 4), integers(1, 3)], {"axis": 2}, outputs=2)
    check(sized, "SP1", f"{ROWS}, 1: [time, left] ++ [2]")


def test_split_at_the_border_of_segments() -> None:
    model = parse(
        """(float[batch,time,3] x, float[batch,late,3] y) => (float[a,b,c] first, float[a,b,c] second)
        { j = Concat<axis = 1>(x, y)  m = Shape<start = 1, end = 2>(x)  n = Shape<start = 1, end = 2>(y)
          sizes = Concat<axis = 0>(m, n)  first, second = Split<axis = 1>(j, sizes) }"""
    )
    axes = Axes("batch", {"time": Side.LEFT, "late": Side.LEFT})
    derivation = propagate(model, axes, input_facts(model, axes))
    first, second = (derivation.fact(value) for value in model.graph.outputs)
    assert str(first).startswith("{0: rows(batch), 1: [time, left]}")
    assert str(second).startswith("{0: rows(batch), 1: [late, left]}")


UNKNOWN = Operand((1,), ir.DataType.INT64)
TABLE = constant(np.arange(18.0).reshape(1, 9, 2))

REFUSED = [
    (Node("Concat", [along(LEFT), along(RIGHT)], {"axis": 2}), "laid out [time, left] and [time, right] along axis 1"),
    (Node("Concat", [along(LEFT), along(LEFT)], {"axis": 0}), "rows of one batch would mix"),
    (cut(RIGHT, 1, END), "by slot, not by position"),
    (cut(RIGHT, 0, 2), "by slot, not by position"),
    (cut(RIGHT, 0, END, 2), "in steps of 2"),
    (cut(LEFT, 2, 0, -1), "backwards over a part"),
    (cut(LEFT, "1 - time", END), "Slice at 1 - time of time entries"),
    (Node("Slice", [along(LEFT), integers(0), integers(1), integers(0)]), "rows of one batch would mix"),
    (Node("Slice", [Operand((1, "time", 3)), integers(-1), integers(END), integers(1)]), "which all rows share"),
    (Node("Slice", [along(LEFT), UNKNOWN, integers(END), integers(1)]), "computed from data"),
    (Node("Split", [along(LEFT)], {"axis": 1, "num_outputs": 2}, outputs=2), "equal parts"),
    (Node("Split", [along(LEFT), UNKNOWN], {"axis": 1}, outputs=2), "parts of computed sizes"),
    (Node("Split", [along(LEFT), integers(2, 3)], {"axis": 1}, outputs=2), "pieces of 5 entries in all"),
    (Node("Slice", [TABLE, integers(0), number("4 - time", shape=(1,)), integers(1)]), "fewer for longer"),
    (Node("Slice", [along(LEFT), integers(-1), integers(2**40), integers(1), integers(-1)]), "backwards over a part"),
    (Node("Slice", [along(AHEAD), integers(2), integers(END), integers(1)]), "by slot, not by position"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


AXES = [
    LEFT,
    RIGHT,
    CENTERED,
    GAP,
    joined([Segment(2), Segment(TIME, Side.RIGHT)]),
    joined([Segment(TIME), Segment(CACHE)]),
]


def drawn_concat(rng: np.random.Generator) -> Node:
    operands = [
        along(AXES[int(rng.integers(len(AXES)))]) if rng.random() < 0.6 else fixed(int(rng.integers(1, 4)))
        for _ in range(int(rng.integers(1, 4)))
    ]
    return Node("Concat", operands, {"axis": 1})


def drawn_cut(rng: np.random.Generator) -> Node:
    axis = AXES[int(rng.integers(len(AXES)))]
    texts = ["time", "time - 1", "time + 1", "-time", "2*time - 1", "time//2", "cache", "1 - time", str(size_of(axis))]
    bounds: list[int | str] = []
    for usual in (0, END):
        drawn = [usual, int(rng.integers(-3, 4)), texts[int(rng.integers(len(texts)))]]
        bounds.append(drawn[int(rng.integers(3))])  # type: ignore[arg-type]
    step = 1 if rng.random() < 0.8 else int(rng.integers(2, 4))
    return cut(axis, bounds[0], bounds[1], step, time=3)


def test_random_joins() -> None:
    attack(drawn_concat, 60, 60)


def test_random_cuts() -> None:
    attack(drawn_cut, 120, 50)
