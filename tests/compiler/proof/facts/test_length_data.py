"""Axis lengths that meet data: numbers again among what rows share, one per row among rows, refused without rows."""

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph.model import infer_shapes, symbol
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fact, Rewrite, make_fact
from compiler.proof.facts.interval import ANYTHING
from compiler.proof.facts.layout import Rows, Segment, Side, joined, suffix
from compiler.proof.facts.length_data import lengths_alone, own_layouts, per_row, unlike_window
from compiler.proof.facts.row_value_plans import RowValueLayout
from tests.kit.attacked import Node, Operand, model_of, number
from tests.kit.graphs import parse

FLOAT = ir.DataType.FLOAT
ROWS = make_fact({0: (Rows(symbol("batch")),), 1: suffix(symbol("time"))}, lambda region: ANYTHING)
SHARED = make_fact({0: suffix(symbol("time"))}, lambda region: ANYTHING)


def case_of(first: Fact, size: str, batch: str | None = "batch") -> Case:
    """Div(first, size)."""
    shape = ("batch", "time") if first is ROWS else ("time",)
    model = model_of(Node("Div", [Operand(shape), number(size, FLOAT)]))
    infer_shapes(model)
    node = next(each for each in model.graph if each.name == "target")
    return Case(node, [first, NUMBER], batch, {"time": Side.LEFT})


def test_among_rows_it_is_one_number_per_row() -> None:
    case = case_of(ROWS, "time + 2")
    assert lengths_alone(case) is None
    per_row(case)
    assert case.needs == [Rewrite("number", (1, RowValueLayout(2, 0, (Rows(symbol("batch")),), ())))]
    assert (case.fact(1).valid.low, case.fact(1).valid.high) == pytest.approx((2.0, 2**31), rel=1e-5)
    falling = case_of(ROWS, "7 - time")
    per_row(falling)
    assert falling.fact(1).valid.high == pytest.approx(7.0, rel=1e-5)


def test_among_what_rows_share_it_stays_a_number() -> None:
    verdict = lengths_alone(case_of(SHARED, "time"))
    assert verdict is not None and verdict.outputs == (NUMBER,)


def test_the_batch_is_no_number_for_a_row() -> None:
    with pytest.raises(Refused, match="batch size"):
        per_row(case_of(ROWS, "batch"))


def test_without_a_batch_axis_there_is_no_place_for_it() -> None:
    with pytest.raises(Refused, match="one per row"):
        lengths_alone(case_of(SHARED, "time", batch=None))


def test_numbers_lie_as_the_joined_axis_of_their_size_where_there_is_one() -> None:
    past, time = symbol("past"), symbol("time")
    both = joined([Segment(past, Side.RIGHT), Segment(time, Side.LEFT)])
    case = case_of(ROWS, "time")
    case.seen = {past + time: both}
    assert own_layouts(case, (past + time, time, 3)) == (both, suffix(time), None)


def test_what_repeats_otherwise_than_a_joined_axis_lies_is_computed_for_each_row() -> None:
    size = symbol("past") + symbol("time")
    model = parse(
        """(float[batch,past] x, float[batch,time] y) => (float[n,m] z) <int64 none = {0}, int64 one = {1}> {
            joined = Concat<axis = 1>(x, y)
            whole = Shape(joined)
            last = Shape<start = 1, end = 2>(joined)
            count = Squeeze(last)
            places = Range(none, count, one)
            shared = Cast<to = 1>(places)
            z = Expand(shared, whole)
        }""",
        {},
    )
    infer_shapes(model)
    node = next(each for each in model.graph if each.op_type == "Expand")
    given = make_fact({0: suffix(size)}, lambda region: ANYTHING)
    case = Case(node, [given, NUMBER], "batch", {"time": Side.LEFT, "past": Side.RIGHT})
    assert not unlike_window(case)
    case.seen = {size: joined([Segment(symbol("past"), Side.RIGHT), Segment(symbol("time"), Side.LEFT)])}
    assert unlike_window(case)


def test_without_a_batch_axis_what_callers_feed_is_data_of_the_only_row() -> None:
    model = parse("(float t, float[time,2] x) => (float y) { s = Shape<start = 0, end = 1>(x)  y = Div(t, t) }")
    node = next(each for each in model.graph if each.op_type == "Div")
    fed = Case(node, [Fact(), NUMBER], None, {"time": Side.LEFT}, fed={model.graph.inputs[0]})
    assert fed.is_of_rows(0)
    assert not fed.is_of_rows(1)  # a length
    assert lengths_alone(fed) is None
    shared = Case(node, [Fact(), NUMBER], None, {"time": Side.LEFT})
    assert lengths_alone(shared) is not None
