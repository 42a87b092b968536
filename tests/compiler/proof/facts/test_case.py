"""What a rule asks of its node."""

import pytest

from compiler.errors import Refused
from compiler.graph.model import symbol
from compiler.proof.facts.case import Case, broadcast, everywhere
from compiler.proof.facts.facts import Clamp, Fact, Fill, make_fact
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval, bounded
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, joined, suffix
from tests.kit.graphs import node_named, parse

MODERATE = bounded(100.0)
TIME = symbol("time")
ROWS: Axis = (Rows(symbol("batch")),)


def padded(*axes: int, rows: int | None = 0) -> Fact:
    """A fact padded along axes, with anything there."""
    layouts: dict[int, Axis] = {axis: suffix(TIME) for axis in axes}
    if rows is not None:
        layouts[rows] = ROWS
    return make_fact(layouts, lambda region: ANYTHING if region else MODERATE)


def case(*facts: Fact, dims: str = "batch,time,4", other: str = "4") -> Case:
    """An Add of two values."""
    model = parse(f"(float[{dims}] x, float[{other}] w) => (float[{dims}] y) {{ y = Add(x, w) }}")
    return Case(node_named(model, "y"), facts, "batch", {"time": Side.LEFT, "cache": Side.RIGHT})


def test_a_fill_is_stated_once_and_only_where_it_is_needed() -> None:
    asked = case(padded(1), Fact())
    assert asked.fill(0, 1, 0.0).padding(1) == ZERO
    asked.fill(0, 1, 0.0)
    assert asked.needs == [Fill(0, 1, 0.0)]


def test_a_shared_value_gets_rows_where_its_first_axis_is_one() -> None:
    assert case(padded(1, rows=None), Fact(), dims="1,time,4").fill(0, 1, 0.0).rows_axis == 0
    with pytest.raises(Refused, match="all rows share"):
        case(padded(1, rows=None), Fact(), dims="3,time,4").fill(0, 1, 0.0)


def test_a_clamp_is_stated_unless_the_padding_is_legal() -> None:
    asked = case(padded(1), Fact())
    assert asked.clamp(0, -5, 4).padding(1) == Interval(-5, 4)
    asked.clamp(0, -5, 4)
    assert asked.needs == [Clamp(0, -5, 4)]


def test_layouts_of_sizes() -> None:
    asked = case(padded(1), Fact())
    cache = symbol("cache")
    assert asked.layout(7) is None
    assert asked.layout(2 * TIME) == suffix(2 * TIME)
    assert asked.layout(cache + 3) == (Frames((Segment(cache + 3, Side.RIGHT),)),)
    assert asked.layout(4 * symbol("batch")) == (*ROWS, Plain(4))
    for size in (TIME + cache, TIME * symbol("batch")):
        with pytest.raises(Refused):
            asked.layout(size)


def test_the_batch_cannot_be_acted_along() -> None:
    asked = case(padded(1), Fact())
    with pytest.raises(Refused, match="would mix"):
        asked.simple_frames(0, 0)
    assert asked.simple_frames(0, 1) == suffix(TIME)[0]
    assert asked.simple_frames(0, 2) is None


def test_broadcast_wants_equal_layouts_or_one_entry() -> None:
    assert broadcast(case(padded(1), Fact()), [0, 1], 3) == {0: ROWS, 1: suffix(TIME)}
    with pytest.raises(Refused, match="5 entries there"):
        broadcast(case(padded(1), Fact(), other="5,4"), [0, 1], 3)


def test_regions_along_an_axis() -> None:
    fact = padded(1, 2).filled(2, 0.0)
    assert everywhere(fact, frozenset(), 2) == MODERATE
    assert everywhere(fact, frozenset({1}), 2) == ANYTHING


def test_one_number_everywhere_is_laid_out_as_what_it_meets() -> None:
    apart, whole = joined([Segment(TIME), Segment(1)]), suffix(TIME + 1)
    facts = make_fact({0: ROWS, 1: apart}, lambda region: MODERATE), make_fact({0: ROWS, 1: whole}, lambda region: ZERO)
    for order in (facts, facts[::-1]):
        assert broadcast(case(*order, other="batch,time,4"), [0, 1], 3) == {0: ROWS, 1: apart}
    other = make_fact({0: ROWS, 1: suffix(TIME + 2)}, lambda region: ZERO)
    for pair in ((facts[0], other), (facts[0], make_fact({0: ROWS, 1: whole}, lambda region: MODERATE))):
        with pytest.raises(Refused, match="Add joins"):
            broadcast(case(*pair, other="batch,time,4"), [0, 1], 3)
