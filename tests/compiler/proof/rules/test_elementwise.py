"""Rules EW under attack: contents by region, lengths as data, positions that stay positions, division of integers."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.proof.facts.facts import VALID, Fill, Index, Rewrite
from compiler.proof.facts.interval import ANYTHING, ONE, TRUTH, ZERO, Interval, bounded
from compiler.proof.facts.interval import constant as exactly
from compiler.proof.facts.transfer import BINARY, EXACT, ROUNDED
from compiler.proof.rules.elementwise import PARAMETRIC, TABLE
from tests.kit.judged import check, check_refused, rewrites
from tests.kit.soundness import Node, Operand, Unsound, check_node, constant, number

FLOAT, INT32, INT64, UINT8, UINT64, BOOL = (
    getattr(ir.DataType, name) for name in ("FLOAT", "INT32", "INT64", "UINT8", "UINT64", "BOOL")
)
SHAPE = ("batch", "time", 2)
LAID_OUT = "0: rows(batch), 1: [time, left]"
LOWEST = float(np.finfo(np.float32).min)
COUNTED = Interval(0.0, 2.0**31)
X = Operand(SHAPE)


def padded(content: Interval, valid: Interval | None = None, dtype: ir.DataType = FLOAT) -> Operand:
    return Operand(SHAPE, dtype, valid, content)


# What becomes of the padding


PADDING = [
    (Node("Relu", [padded(bounded(3.0))]), Interval(0.0, 3.0)),
    (Node("Neg", [padded(Interval(-1.0, 3.0))]), Interval(-3.0, 1.0)),
    (Node("Cos", [padded(ZERO)]), ONE),
    (Node("Exp", [padded(exactly(-math.inf))]), ZERO),
    (Node("LeakyRelu", [padded(Interval(-4.0, 2.0))], {"alpha": 0.5}), Interval(-2.0, 2.0)),
    (Node("HardSigmoid", [padded(ZERO)]), exactly(0.5)),
    (Node("Identity", [padded(ANYTHING)]), ANYTHING),
    (Node("Clip", [padded(Interval(-math.inf, math.inf)), constant(0.0), constant(6.0)]), Interval(0.0, 6.0)),
    (Node("Clip", [padded(bounded(9.0)), None, Operand((), valid=Interval(0.0, 2.0))]), Interval(-9.0, 2.0)),
    (Node("Add", [padded(ZERO), constant([2.0, 2.0])]), exactly(2.0)),
    (Node("Mul", [padded(ZERO), X]), ANYTHING),
    (Node("Mul", [padded(ZERO), padded(bounded(5.0))]), ZERO),
    (Node("Div", [padded(Interval(1.0, 4.0)), constant([2.0, 2.0])]), Interval(0.5, 2.0)),
    (Node("Where", [padded(ZERO, dtype=BOOL), X, constant([1.0, 1.0])]), ONE),
    (Node("Where", [padded(TRUTH, dtype=BOOL), constant([1.0, 1.0]), constant([0.0, 0.0])]), TRUTH),
    (Node("Cast", [padded(ONE, dtype=BOOL)], {"to": FLOAT}), ONE),
    (Node("Cast", [padded(Interval(0.0, 7.5))], {"to": INT64}), Interval(0.0, 7.0)),
    (Node("Max", [padded(Interval(-9.0, 1.0)), constant([0.0, 0.0]), constant([-1.0, -1.0])]), Interval(0.0, 1.0)),
    (Node("Max", [padded(bounded(9.0), dtype=INT64), constant(0, np.int64)]), Interval(0.0, 9.0)),
    (Node("Max", [padded(ANYTHING, dtype=INT64), constant(0, np.int64)]), bounded(2.0**63)),  # compared wrongly
    (Node("Clip", [padded(ANYTHING, dtype=INT64), constant(0, np.int64), None]), bounded(2.0**63)),
    (Node("Sign", [padded(Interval(2.0, 2.0**40), dtype=INT64)]), bounded(1.0)),
    (Node("Abs", [padded(exactly(-(2.0**63)), dtype=INT64)]), bounded(2.0**63)),  # has no negative in 64 bits
    (Node("Neg", [padded(exactly(-(2.0**63)), dtype=INT64)]), bounded(2.0**63)),
    (Node("Dropout", [padded(ZERO)], outputs=2), ZERO),
]


@pytest.mark.parametrize(("node", "expected"), PADDING, ids=lambda value: value.op if isinstance(value, Node) else "")
def test_the_padding_holds_what_the_function_makes_of_it(node: Node, expected: Interval) -> None:
    verdict = check_node(node, extremes=True)
    got = verdict.outputs[0].content({1})
    assert (got.low, got.high, got.nan) == pytest.approx((expected.low, expected.high, expected.nan), rel=1e-5)
    assert verdict.pointwise and not verdict.needs


def test_masks_that_are_one_alone_make_nothing_of_their_valid_places() -> None:
    """(1 - mask) * lowest is 0 where the mask is 1, and the lowest number in the padding."""
    mask = padded(ZERO, valid=ONE)
    inverted = check_node(Node("Sub", [constant([1.0, 1.0]), mask])).outputs[0]
    assert (inverted.valid, inverted.content({1})) == (ZERO, ONE)
    added = Node("Mul", [padded(ONE, valid=ZERO), constant([LOWEST, LOWEST])])
    assert check_node(added).outputs[0].valid == ZERO
    assert check_node(added).outputs[0].content({1}) == exactly(LOWEST)


def test_where_without_nan_has_none() -> None:
    """Where(IsNaN(x), 0, x)."""
    node = Node("Where", [padded(TRUTH, dtype=BOOL), constant([0.0, 0.0]), X])
    assert check_node(node).outputs[0].content({1}).nan


# Layouts


def test_layouts_meet_themselves_or_one_entry() -> None:
    check(Node("Add", [X, Operand(("time", 1))]), "EW2", LAID_OUT)
    check(Node("Add", [Operand(("batch", 1, 2)), Operand(("time", 1))]), "EW2", LAID_OUT)
    check(Node("Tanh", [Operand(("2*batch", "time"))]), "EW1", "0: rows(batch) * 2, 1: [time, left]")
    check_refused(Node("Add", [X, constant(np.ones((3, 2)))]), "3 entries there")
    check_refused(Node("Mul", [X, Operand(("batch", "cache", 2))], right=["cache"]), "joins")


def test_what_cannot_be_said_is_refused() -> None:
    check_refused(Node("Clip", [X, Operand(("batch", 1, 1))]), "of its own for each row")
    training = constant(True, np.bool_)
    check_refused(Node("Dropout", [X, constant(0.5), training]), "training mode")
    check_refused(Node("Add", [X, number("batch", FLOAT)]), "batch size")


# Lengths as data


@pytest.mark.parametrize("size", ["time", "time//2 + 1", "2*time"])
def test_a_length_among_data_is_one_per_row(size: str) -> None:
    for op in ("Div", "Mul", "Max"):
        verdict = check(Node(op, [X, number(size, FLOAT)]), "EW2", LAID_OUT)
        assert rewrites(verdict) == ["number"]
    check(Node("Where", [padded(TRUTH, dtype=BOOL), X, number(size, FLOAT, (1,))]), "EW4", LAID_OUT)


def test_a_length_that_meets_only_what_rows_share_stays_a_number() -> None:
    positions = Operand(("time",), INT64, COUNTED, COUNTED, index=Index(0))
    assert check_node(Node("Add", [positions, number("time")])).outputs[0].is_number
    assert check_node(Node("Sqrt", [number("time", FLOAT)])).outputs[0].is_number


# Positions


def test_positions_plus_a_constant_are_positions() -> None:
    positions = Operand(("time", 1), INT64, COUNTED, COUNTED, index=Index(0))
    assert check_node(Node("Add", [positions, constant(2, np.int64)])).outputs[0].index == Index(0, 2)
    assert check_node(Node("Sub", [positions, constant([[[3]]], np.int64)])).outputs[0].index == Index(1, -3)
    assert check_node(Node("Add", [constant([1, 1], np.int64), positions])).outputs[0].index == Index(0, 1)
    assert check_node(Node("Cast", [positions], {"to": FLOAT})).outputs[0].index == Index(0)
    assert check_node(Node("Cast", [positions], {"to": ir.DataType.FLOAT16})).outputs[0].index is None
    assert check_node(Node("Sub", [constant(3, np.int64), positions])).outputs[0].index is None


def test_a_constant_that_is_one_only_where_it_is_valid_leaves_no_positions() -> None:
    positions = Operand(("time",), INT64, COUNTED, COUNTED, index=Index(0))
    shift = Operand(("late", 1), INT64, exactly(3.0), Interval(-9.0, 9.0))
    assert check_node(Node("Add", [positions, shift])).outputs[0].index is None


def test_how_far_apart_positions_are_is_known_by_region() -> None:
    query = Operand(("time", 1), INT64, COUNTED, COUNTED, index=Index(0))
    key = Operand(("time",), INT64, COUNTED, COUNTED, index=Index(0))
    apart = check_node(Node("Sub", [key, query]), trials=12).outputs[0]
    assert apart.content({1}).low == 1.0
    assert apart.content({0}).high == -1.0
    same = check_node(Node("Sub", [key, key])).outputs[0]
    assert same.anywhere == ZERO


# Division of integers


def test_integer_division_of_padding_does_not_end_the_run() -> None:
    whole = padded(ANYTHING, Interval(-50.0, 50.0), INT64)
    divisor = padded(ANYTHING, Interval(1.0, 9.0), INT64)
    for op in ("Div", "Mod"):
        verdict = check_node(Node(op, [whole, divisor]), trials=12, extremes=True)
        assert Fill(1, 1, 1.0) in verdict.needs
        by_minus_one = check_node(Node(op, [whole, constant([-1, 2], np.int64)]), trials=12, extremes=True)
        assert by_minus_one.needs == (Fill(0, 1, 0.0),)
        assert check_node(Node(op, [whole, constant(-1, np.int64)]), trials=12, extremes=True).needs == (
            Fill(0, 1, 0.0),
        )
        assert not check_node(Node(op, [whole, constant([3, 2], np.int64)]), extremes=True).needs


# All of them


def content(random: np.random.Generator) -> Interval:
    low, high = sorted(
        float(np.float32(end)) for end in random.standard_normal(2) * random.choice([0.1, 1.0, 1e3, 1e20, 1e30])
    )
    known = [ZERO, ONE, exactly(low), Interval(low, high), Interval(0.0, abs(high)), bounded(1.0)]
    known += [ANYTHING, ANYTHING, Interval(-math.inf, high), Interval(low, math.inf), Interval(-math.inf, math.inf)]
    known += [exactly(-math.inf), exactly(math.inf), exactly(LOWEST)]
    return known[int(random.integers(len(known)))]


def operand(random: np.random.Generator, dtype: ir.DataType = FLOAT, shape: tuple[int | str, ...] = SHAPE) -> Operand:
    if dtype == FLOAT:
        return Operand(shape, dtype, content(random), content(random))
    ends = random.integers(0, 2, 2) if dtype == BOOL else random.integers(-6, 7, 2)
    low, high = sorted(float(abs(end) if dtype in (UINT8, UINT64) else end) for end in ends)
    return Operand(
        shape,
        dtype,
        Interval(min(low, 1.0), max(high, 1.0)),
        ANYTHING if random.random() < 0.5 else Interval(low, high),
    )


INTEGER_ONLY = {"BitShift": UINT64, "BitwiseAnd": INT64, "BitwiseOr": INT64, "BitwiseXor": INT64}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "BitShift": {"direction": "LEFT"},
    "Celu": {"alpha": 2.0},
    "Elu": {"alpha": 0.5},
    "HardSigmoid": {"alpha": 0.5, "beta": -1.0},
    "Mod": {"fmod": 1},
    "Selu": {"gamma": -2.0},
    "Shrink": {"bias": 0.5},
}


def drawn(random: np.random.Generator) -> Iterator[Node]:
    """One node of every operator."""
    for op in (*EXACT, *ROUNDED, *PARAMETRIC):
        if op != "Swish":  # of opset 24, which ONNX Runtime lacks
            dtype = {"Not": BOOL, "BitwiseNot": INT64}.get(op, FLOAT)
            yield Node(op, [operand(random, dtype)], ATTRIBUTES.get(op, {}))
    for op in ("Abs", "Neg", "Sign"):
        yield Node(op, [operand(random, INT32)])
    for op in BINARY:
        dtype = INTEGER_ONLY.get(op, FLOAT)
        shape = SHAPE if op == "PRelu" else (SHAPE, ("time", 1), ("batch", 1, 2))[int(random.integers(3))]
        yield Node(op, [operand(random, dtype), operand(random, dtype, shape)], ATTRIBUTES.get(op, {}))
        if op in ("Add", "Div", "Max", "Min", "Mod", "Mul", "Pow", "Sub"):
            yield Node(op, [operand(random, INT64), operand(random, INT64)])
        if op in ("Max", "Mean", "Sum"):
            yield Node(op, [operand(random) for _ in range(3)])
    for exponent in (0.0, 1.0, 2.0, 3.0, 0.5, -1.0):
        yield Node("Pow", [operand(random), constant(exponent)])
    for to in ("FLOAT16", "DOUBLE", "INT32", "INT64", "INT8", "UINT8", "BOOL"):
        yield Node("Cast", [operand(random)], {"to": getattr(ir.DataType, to)})
    yield Node("Cast", [operand(random, INT64)], {"to": UINT8})
    yield Node("CastLike", [operand(random), constant([0], np.int64)])
    yield Node("Where", [operand(random, BOOL), operand(random), operand(random)])
    yield Node(
        "Clip", [operand(random), constant(random.choice([0.0, -np.inf])), constant(random.choice([1.0, np.inf]))]
    )
    yield Node("Clip", [operand(random)])


@pytest.mark.parametrize("seed", range(2))
def test_every_operator_holds_under_attack(seed: int) -> None:
    judged = set()
    for node in drawn(np.random.default_rng(seed)):
        try:
            check_node(node, trials=2, seed=seed, extremes=True, tolerance=2e-6)
        except Unsound as unsound:
            pytest.fail(f"{node}\n{unsound}")
        except AssertionError as error:
            if "no lengths" not in str(error):  # a divisor that can only be 0
                raise
        except Refused as refused:
            pytest.fail(f"{node}\n{refused}")
        judged.add(node.op)
    here = {op for (_, op), rule in TABLE.items() if getattr(rule, "__module__", "").endswith("elementwise")}
    assert here - judged <= {"Dropout", "Identity", "Swish"}


def test_the_form_of_a_length_is_asked_for_once_per_operand() -> None:
    verdict = check_node(Node("Where", [padded(TRUTH, dtype=BOOL), number("time", FLOAT), padded(ANYTHING, ONE)]))
    assert [(need.kind, need.details[0]) for need in verdict.needs if isinstance(need, Rewrite)] == [("number", 1)]
    assert len(verdict.needs) == 1
    assert verdict.outputs[0].content(VALID).is_finite
