"""Facts: regions, contents, and what a fill makes of them."""

import math

from compiler.graph.model import symbol
from compiler.proof.facts.facts import Assumption, Fact, make_fact, regions_of
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval, bounded, constant
from compiler.proof.facts.layout import Rows, suffix

MODERATE = bounded(100.0)
TIME, BATCH = symbol("time"), symbol("batch")


def fact() -> Fact:
    """[batch, time, time] with anything in the padding."""
    axes = {0: (Rows(BATCH),), 1: suffix(TIME), 2: suffix(TIME)}
    return make_fact(axes, lambda region: ANYTHING if region else MODERATE)


def test_regions_are_the_subsets_of_the_padded_axes() -> None:
    assert fact().padded == (1, 2)
    assert fact().rows_axis == 0
    assert [sorted(region) for region in regions_of((1, 2))] == [[], [1], [2], [1, 2]]


def test_a_fill_reaches_every_region_of_its_axis_and_no_other() -> None:
    filled = fact().filled(2, 7.0)
    assert filled.content({2}) == filled.content({1, 2}) == constant(7.0)
    assert filled.content({1}) == ANYTHING
    assert filled.padding(2) == constant(7.0)
    assert filled.valid == MODERATE


def test_axes_that_hold_neither_rows_nor_padding_are_dropped() -> None:
    assert make_fact({0: suffix(4)}, lambda region: ZERO) == Fact(contents=((frozenset(), ZERO),))
    assert Fact().is_plain


def test_nothing_is_taken_for_granted_of_entries_that_are_known() -> None:
    no_nan, finite = Assumption(0, "no NaN"), Assumption(0, "finite")
    assert no_nan.is_needed(ANYTHING) and finite.is_needed(ANYTHING)
    assert not no_nan.is_needed(Interval(0.0, math.inf)) and finite.is_needed(Interval(0.0, math.inf))
    assert not finite.is_needed(MODERATE)


def test_text_names_axes_and_contents() -> None:
    assert "rows(batch)" in str(fact())
    assert "[1, 2]: anything" in str(fact())
