"""Rules with one planted mistake each are caught, by the invariant that they break; honest rules pass."""

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Fill, Index, Verdict, make_fact
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval, constant
from compiler.proof.facts.layout import Frames, Segment, Side, suffix
from compiler.proof.propagation.judge import judge
from tests.kit import soundness as kit
from tests.kit.soundness import Node, Operand, Unsound, check_node

X = Operand(("batch", "time", 3))
COUNTED = Interval(0, 2.0**31)
POSITIONS = Operand(("time",), ir.DataType.INT64, COUNTED, COUNTED, index=Index(0))

HONEST = {
    "one operand": Node("Relu", [X]),
    "broadcast over the batch": Node("Add", [X, Operand(("time", 1))]),
    "broadcast constant": Node("Mul", [X, kit.constant(np.ones(3))]),
    "merged batch": Node("Tanh", [Operand(("2*batch", "time"))]),
    "right-aligned": Node("Sub", [Operand(("batch", "cache")), Operand(("batch", "cache"))], right=["cache"]),
    "kept axes of a product": Node("MatMul", [X, Operand(("batch", 3, "cache"))], right=["cache"]),
    "a summed axis": Node("MatMul", [Operand(("batch", 4, "cache")), Operand(("batch", "cache", 3))], right=["cache"]),
    "positions against the length": Node("Less", [POSITIONS, kit.number("time")]),
    "a causal mask": Node("Less", [dataclasses.replace(POSITIONS, shape=("time", 1)), POSITIONS]),
    "a length as data": Node("Div", [X, kit.number("time//2 + 1", ir.DataType.FLOAT)]),
}


@pytest.mark.parametrize("node", HONEST.values(), ids=HONEST)
def test_honest_rules_pass(node: Node) -> None:
    check_node(node, trials=12)


def test_fills_are_made_before_the_padded_run() -> None:
    verdict = check_node(Node("MatMul", [Operand((1, 3, "time")), Operand(("batch", "time", 2))]))
    assert any(isinstance(need, Fill) for need in verdict.needs)


def claims(content: Interval, valid: Interval = ANYTHING) -> Callable[[Case], Verdict]:
    """A rule that claims one content for all padding."""

    def rule(case: Case) -> Verdict:
        out = make_fact(case.fact().tracked, lambda region: content if region else valid)
        return case.verdict("XX", "planted", out)

    return rule


def nothing(case: Case) -> Verdict:
    """A rule that keeps the first operand's axes, needs nothing and claims nothing."""
    return claims(ANYTHING)(case)


def without(needs: bool = True, pointwise: bool = False) -> Callable[[Case], Verdict]:
    """The registry's verdict without its needs, or with a wrong claim."""

    def rule(case: Case) -> Verdict:
        verdict = judge(case)
        verdict = dataclasses.replace(verdict, needs=()) if needs else verdict
        return dataclasses.replace(verdict, pointwise=True) if pointwise else verdict

    return rule


def resized(case: Case) -> Verdict:
    """A rule that takes a Slice for one that keeps the size."""
    return case.verdict("XX", "planted", make_fact(case.fact().tracked, lambda region: ANYTHING))


def left(case: Case) -> Verdict:
    """A rule that puts valid entries on the wrong side."""
    axes = {**case.fact().tracked, 1: suffix(case.dims()[1])}
    return case.verdict("XX", "planted", make_fact(axes, lambda region: ANYTHING))


def untracked(case: Case) -> Verdict:
    """A rule that forgets the padded axis."""
    axes = {at: axis for at, axis in case.fact().axes if at != 1}
    return case.verdict("XX", "planted", make_fact(axes, lambda region: ANYTHING))


def mixes_slots(case: Case) -> Verdict:
    """A running sum is no pointwise operator."""
    verdict = claims(ANYTHING)(case)
    return dataclasses.replace(verdict, pointwise=True)


CLEAN = Operand(("batch", "time", 3), padding=ZERO)
ROWS = kit.constant([0], np.int64)

PLANTED = {
    "padding is not zero": ("I3", Node("Cos", [CLEAN]), claims(ZERO)),
    "padding may be NaN": ("I3", Node("Relu", [X]), claims(Interval(0.0, np.inf))),
    "padding may be infinite": ("I3", Node("Exp", [Operand(X.shape, padding=constant(90.0))]), claims(constant(1e37))),
    "valid entries are not constant": ("I3", Node("Identity", [X]), claims(ANYTHING, ZERO)),
    "a summed axis without fill": (
        "I1", Node("MatMul", [Operand(("batch", 4, "time")), Operand(("batch", "time", 3))]), without(needs=True),
    ),
    "a softmax without fill": ("I1", Node("Softmax", [X], {"axis": 1}), nothing),
    "a running sum from the back": ("I1", Node("CumSum", [X, kit.constant(1, np.int64)], {"reverse": 1}), nothing),
    "rows mix": ("I1", Node("Softmax", [X], {"axis": 0}), nothing),
    "rows trade places": (
        "I1", Node("Slice", [X, kit.constant([-1], np.int64), kit.constant([-(2**62)], np.int64), ROWS,
                             kit.constant([-1], np.int64)]), nothing,
    ),
    "a size that shrinks": (
        "I2", Node("Slice", [X, kit.constant([1], np.int64), kit.constant([2**62], np.int64),
                             kit.constant([1], np.int64)]), resized,
    ),
    "the wrong side": (
        "I1", Node("Identity", [Operand(("batch", "cache"))], right=["cache"]), left,
    ),
    "a padded axis is forgotten": ("I2", Node("Relu", [X]), untracked),
    "a number that counts slots": ("I1", Node("Div", [X, kit.number("time", ir.DataType.FLOAT)]), without(needs=True)),
    "not pointwise": ("mixes slots", Node("CumSum", [X, kit.constant(1, np.int64)]), mixes_slots),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_a_planted_mistake_is_caught(planted: tuple[str, Node, Callable[[Case], Verdict]]) -> None:
    invariant, node, rule = planted
    with pytest.raises(Unsound, match=invariant):
        check_node(node, rule=rule, trials=40)


def test_segments_of_both_sides_are_cut_where_their_valid_entries_lie() -> None:
    """[cache right-aligned] ++ [2 full] is right-aligned; time left-aligned behind a fixed part stays left-aligned."""
    size = "cache + 2 + time"
    cache, time = graphs.symbol("cache"), graphs.symbol("time")
    axis = (Frames((Segment(cache + 2, Side.RIGHT), Segment(time))),)
    operand = Operand(("batch", size), axes={1: axis})
    check_node(Node("Neg", [operand], right=["cache"]), trials=12)
    with pytest.raises(Unsound, match="I1"):
        check_node(Node("Neg", [operand], right=["cache"]), rule=left, trials=40)


def test_facts_of_operands_are_what_their_shapes_say() -> None:
    seen: list[Fact] = []

    def rule(case: Case) -> Verdict:
        seen.append(case.fact())
        return judge(case)

    check_node(Node("Abs", [Operand(("2*batch", 5, "time"), padding=ZERO)]), rule=rule, trials=1)
    assert str(seen[0]).startswith("{0: rows(batch) * 2, 2: [time, left]} valid:")
