"""What every entry of a value holds is derived for all places and lengths at once, or not at all."""

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_entries import (
    constant_everywhere,
    counted_axis,
    never_zero,
    stays_below,
    uniform_values,
)
from tests.compiler.proof.facts.test_shape_only import value

TIME, LATE = (graphs.symbol(name) for name in ("time", "late"))

COUNTED = {
    "y = Identity(frames)": 0,
    "y = Unsqueeze(frames, zero)": 1,
    "a = Concat<axis = 0>(b, t)  f = Unsqueeze(frames, zero)  y = Expand(f, a)": 1,
    "r = Unsqueeze(rows, one)  a = Concat<axis = 0>(b, t)  y = Expand(r, a)": 0,
    "y = Add(frames, unit)": None,
    "y = Mul(frames, two)": None,
    "y = Identity(mask)": None,
    "f = Unsqueeze(frames, one)  y = Concat<axis = 1>(f, f)": 0,
}


@pytest.mark.parametrize(("body", "axis"), COUNTED.items())
def test_what_counts_along_an_axis(body: str, axis: int | None) -> None:
    assert counted_axis(value(body)) == axis


def test_an_entry_that_counts() -> None:
    pair = value("f = Unsqueeze(frames, one)  g = Expand(f, both)  y = Identity(g)")
    assert counted_axis(pair, 1) == 0
    assert counted_axis(value("f = Unsqueeze(frames, one)  g = Mul(f, two)  y = Identity(g)"), 0) is None
    assert counted_axis(value("y = Unsqueeze(fixed, zero)"), 1) is None


def test_bounds() -> None:
    assert stays_below(value("y = Identity(frames)"), TIME)
    assert stays_below(value("y = Div(frames, two)"), expression := graphs.expression("(time + 1)//2"))
    assert not stays_below(value("y = Add(frames, unit)"), TIME)
    assert not stays_below(value("y = Sub(frames, unit)"), TIME)
    assert not stays_below(value("y = Identity(mask)"), TIME)
    assert not stays_below(value("y = Identity(frames)"), LATE)
    assert expression != TIME


@pytest.mark.parametrize(
    ("body", "is_kept"),
    [
        ("y = Add(frames, unit)", True),
        ("a = Sub(frames, m)  y = Unsqueeze(a, zero)", True),
        ("y = Identity(frames)", False),
        ("a = Cast<to = 1>(mask)  c = Cast<to = 7>(a)  d = Max(c, one)  y = Unsqueeze(d, zero)", True),
        ("a = Cast<to = 1>(mask)  c = Cast<to = 7>(a)  y = Max(c, zero)", False),
        ("a = Cast<to = 1>(mask)  c = Cast<to = 7>(a)  d = Max(c, one)  y = Sub(d, one)", False),
    ],
)
def test_what_is_never_nothing(body: str, is_kept: bool) -> None:
    assert never_zero(value(body)) == is_kept


def test_cuts_and_copies_of_one_number_hold_it() -> None:
    spread = "e = Expand(two, t)  f = Slice(e, one, last, zero)  y = Tile(f, one)"
    assert constant_everywhere(value(spread)) == 2
    assert constant_everywhere(value("f = Slice(frames, one, last, zero)  y = Tile(f, one)")) is None


def test_counting_ends_at_a_constant() -> None:
    """A comparison with a constant is seen only beyond it."""
    assert counted_axis(value("c = Constant<value_int = 300>()  y = Min(frames, c)")) is None
    assert counted_axis(value("c = Constant<value_int = 90000>()  y = Min(frames, c)")) is None
    assert counted_axis(value("c = Constant<value_int = 9223372036854775807>()  y = Min(frames, c)")) == 0


UNIFORM = {
    "y = Identity(mask)": [1],
    "y = GreaterOrEqual(frames, nought)": [True],
    "y = Less(frames, two)": None,
    "c = CumSum(mask, across)  l = ReduceMax<keepdims = 0>(c, last)  u = Unsqueeze(l, one)  y = Less(frames, u)": [
        True
    ],
    "c = CumSum(mask, across)  y = ReduceMax<keepdims = 0>(c, last)": None,
    "y = ReduceSum(mask, nowhere)": None,
    "y = ReduceSum<noop_with_empty_axes = 1>(mask)": [1],
    "y = ReduceSum<noop_with_empty_axes = 1>(mask, nowhere)": [1],
    "b1 = Cast<to = 9>(mask)  b2 = Not(b1)  y = NonZero(b2)": [],
    "y = Equal(lengths, m)": [True],
    "c = Constant<value_int = 300>()  y = Less(frames, c)": None,
    "c = Constant<value_int = 90000>()  y = Less(frames, c)": None,
    "c = Constant<value_int = 5>()  y = Gather(frames, c)": [5],
    "y = Gather(lengths, two)": None,
}


@pytest.mark.parametrize(("body", "number"), UNIFORM.items())
def test_what_holds_one_number_for_all_lengths(body: str, number: list[int] | None) -> None:
    wanted = value(body)
    filled: dict[ir.Value, graphs.Dim] = {}
    for name, number_in in (("mask", 1), ("lengths", TIME)):
        filled[value_of(wanted, name)] = number_in
    found = uniform_values([wanted], filled)
    assert (found[wanted].tolist() if found else None) == number


def value_of(wanted: ir.Value, name: str) -> ir.Value:
    """A graph input."""
    graph = wanted.producer().graph  # type: ignore[union-attr]
    return next(each for each in graph.inputs if each.name == name)  # type: ignore[union-attr]


def test_one_run_for_many_values() -> None:
    first = value("y = Identity(mask)  w = Less(frames, two)")
    second = next(node.outputs[0] for node in first.producer().graph if node.outputs[0].name == "w")  # type: ignore[union-attr]
    assert list(uniform_values([first, second], {value_of(first, "mask"): 1})) == [first]
    first = value("y = Identity(mask)  w = Gather(fixed, frames)")  # which fails from 4 frames on
    second = next(node.outputs[0] for node in first.producer().graph if node.outputs[0].name == "w")  # type: ignore[union-attr]
    assert list(uniform_values([first, second], {value_of(first, "mask"): 1})) == [first]


SINGULAR = {
    "one length": "y = Equal(m, {number})",
    "from a length on": "y = Greater(m, {number})",
    "up to a length": "y = LessOrEqual(m, {number})",
    "some remainders": "r = Mod(m, {number})  y = Equal(r, unit)",
    "up to a length, then one number": "y = Min(m, {number})",
    "from a length on, one number more": "e = Equal(m, {number})  y = Where(e, unit, two)",
    "rows of a table": "r = Min(m, {number})  y = Gather(steps, r)",
    "a distance": "d = Sub(m, {number})  a = Mul(d, d)  y = Greater(a, nought)",
    "a place": "e = Equal(frames, {number})  o = Not(e)  y = Cast<to = 7>(o)",
    "a quotient": "q = Div(m, {number})  y = Equal(q, nought)",
    "a rounded length": "f = Cast<to = 1>(m)  c = Cast<to = 1>({number})  d = Sub(f, c)  y = Equal(d, c)",
}
"""Values that differ at few lengths alone; a trial at other lengths finds one number."""


@pytest.mark.parametrize("number", [7, 30, 1001, 50_000, 16_777_217])
@pytest.mark.parametrize("body", SINGULAR.values(), ids=SINGULAR)
def test_what_differs_at_some_length_is_not_derived(body: str, number: int) -> None:
    steps = f"special = Constant<value_int = {number}>()  steps = Constant<value_ints = [0, 0, 0, 1, 0]>()  "
    wanted = value(steps + body.format(number="special"))
    assert uniform_values([wanted], {}) == {}
    assert counted_axis(wanted) is None


DECIDED = {
    "no length is negative": ("y = GreaterOrEqual(m, nought)", True),
    "a remainder is below what divides": ("r = Mod(m, two)  y = Less(r, two)", True),
    "a smaller one is no larger": ("r = Min(m, two)  y = LessOrEqual(r, m)", True),
    "a larger one is no smaller": ("r = Max(m, two)  y = GreaterOrEqual(r, two)", True),
    "halves": ("h = Div(m, two)  d = Mul(h, two)  y = LessOrEqual(d, m)", True),
    "a choice that does not count": ("e = Equal(m, two)  y = Where(e, unit, unit)", 1),
    "one part decides": ("e = Equal(m, two)  l = Less(frames, nought)  y = And(e, l)", False),
    "the last place": ("k = Sub(m, unit)  l = ReduceMax<keepdims = 0>(frames)  y = Equal(k, l)", True),
    "the first place": ("l = ReduceMin<keepdims = 0>(frames)  y = Equal(l, nought)", True),
    "the largest and the smallest": ("f = Neg(frames)  l = ReduceMax<keepdims = 0>(f)  y = Equal(l, nought)", True),
}


@pytest.mark.parametrize(("body", "number"), DECIDED.values(), ids=DECIDED)
def test_what_holds_at_every_length_is_derived(body: str, number: int) -> None:
    wanted = value(body)
    assert [each.tolist() for each in uniform_values([wanted], {}).values()] == [[number]]


def test_lengths_of_floating_point_are_rounded_from_some_on() -> None:
    """2**24 + 1 frames are 2**24 as float32, and so is the place of the last one."""
    assert not uniform_values([value("p = Cast<to = 1>(frames)  o = Cast<to = 1>(m)  y = Less(p, o)")], {})
