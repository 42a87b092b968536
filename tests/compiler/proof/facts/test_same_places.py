"""An index map is held against layouts: of rows, left-aligned, right-aligned and about the middle."""

import pytest
import sympy

from compiler.graph import model as graphs
from compiler.proof.facts.facts import Fact, make_fact
from compiler.proof.facts.index_map import FRAMES, ROWS, IndexMap, Source
from compiler.proof.facts.interval import ANYTHING, ONE, ZERO, Interval
from compiler.proof.facts.layout import Axis, Plain, Rows, Segment, Side, joined, suffix
from compiler.proof.facts.same_places import holds

TIME, BATCH = graphs.symbol("time"), graphs.symbol("batch")
KNOWN = {TIME: FRAMES, BATCH: ROWS}
B, P = sympy.symbols("b p", integer=True, nonnegative=True)
LEFT, RIGHT = suffix(TIME), joined([Segment(TIME, Side.RIGHT)])
MIDDLE = joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)])


def given(axis: Axis, padding: Interval = ANYTHING) -> Fact:
    return make_fact({0: (Rows(BATCH),), 1: axis}, lambda region: padding if region else Interval(-3, 3))


def moved(*cases: Source, size: sympy.Expr = FRAMES) -> IndexMap:
    return IndexMap(((B, ROWS), (P, size)), cases)


def found(cases: IndexMap, fact: Fact, axis: Axis | None) -> bool:
    axes: dict[int, Axis] = {0: (Rows(BATCH),)} | ({} if axis is None else {1: axis})
    return holds(cases, fact, axes, KNOWN)


SAME = moved(Source((), (B, P)))
TURNED = moved(Source((), (B, FRAMES - 1 - P)))


@pytest.mark.parametrize("axis", [LEFT, RIGHT])
def test_entries_that_stay_keep_their_layout(axis: Axis) -> None:
    assert found(SAME, given(axis), axis)
    assert not found(SAME, given(axis), RIGHT if axis is LEFT else LEFT)
    assert not found(SAME, given(axis), None), "an axis that grows has a layout"


def test_a_turned_axis_changes_sides() -> None:
    assert found(TURNED, given(LEFT), RIGHT)
    assert not found(TURNED, given(LEFT), LEFT)


def test_a_right_half_of_the_middle_is_left_aligned() -> None:
    half = moved(Source((), (B, P + FRAMES - 1)))
    assert found(half, given(MIDDLE), LEFT)
    assert not found(half, given(MIDDLE), RIGHT)


def test_rows_stay_apart() -> None:
    assert not found(moved(Source((), (ROWS - 1 - B, P))), given(LEFT), LEFT)
    heads: Axis = (Rows(BATCH), Plain(2))
    fact = make_fact({0: heads, 1: LEFT}, lambda region: ANYTHING if region else Interval(-3, 3))
    whole = IndexMap(((B, 2 * ROWS), (P, FRAMES)), (Source((), (B, P)),))
    assert holds(whole, fact, {0: heads, 1: LEFT}, KNOWN)


@pytest.mark.parametrize(("padding", "added"), [(ZERO, 0.0), (ONE, 1.0), (ZERO, 1.0), (ANYTHING, 0.0)])
def test_added_numbers_and_padding_are_the_same_number(padding: Interval, added: float) -> None:
    """So many more entries are added as there are: the padded program has its padding in front of them."""
    cases = moved(Source((FRAMES - 1 - P,), (B, P)), Source((P - FRAMES,), None, added), size=2 * FRAMES)
    doubled = suffix(2 * TIME)
    assert found(cases, given(LEFT, padding), doubled) == (padding.is_constant and padding.low == added)
