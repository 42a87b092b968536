"""facts: segments join, fills weaken, and both read well in messages."""

import pytest

from compiler.analysis import facts
from compiler.analysis.facts import ANYTHING, FINITE, ZERO, Fact, Fill, Kind, Segment, joined, logical_length, refuse
from compiler.ir import symbol

CACHE = Segment(symbol("cache"), 6)
TWO = Segment(2, 2)


def test_full_neighbours_merge_and_padded_ones_do_not() -> None:
    assert joined((CACHE,), (TWO,)) == (CACHE, TWO)
    assert joined((CACHE, TWO), (TWO,)) == (CACHE, Segment(4, 4))
    assert joined((CACHE,), (CACHE,)) == (CACHE, CACHE)
    assert joined((), (TWO,)) == (TWO,)


def test_lengths_are_logical_and_slots_are_physical() -> None:
    assert logical_length((CACHE, TWO)) == symbol("cache") + 2
    assert facts.physical_length((CACHE, TWO)) == 8
    assert (CACHE.is_full, TWO.is_full) == (False, True)


@pytest.mark.parametrize(
    ("fill", "zero", "finite"), [(ZERO, True, True), (FINITE, False, True), (ANYTHING, False, False)]
)
def test_fills(fill: Fill, zero: bool, finite: bool) -> None:
    assert (fill.is_zero, fill.is_finite) == (zero, finite)
    assert not Fill(Kind.CONSTANT, 1.0).is_zero


def test_facts_read_well() -> None:
    assert str(Fact(1, (CACHE, TWO), ZERO)) == "axis 1: [cache of 6] ++ [2 of 2], padding constant(0)"
    assert str(Fact()) == "plain"
    assert str(Fact(is_length=True)) == "length"


def test_a_refusal_names_its_place() -> None:
    refused = refuse("this", "do that", node="n", axis="cache")
    assert str(refused) == "node n, axis cache: this; do that"
