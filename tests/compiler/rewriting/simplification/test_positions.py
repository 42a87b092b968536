"""Positions counted otherwise are those counted from 0 in whole numbers."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.rewriting.simplification.positions import count_from_zero, count_whole_numbers, look_up_run
from tests.kit.graphs import ops_of, parse, random_weights


def graph(body: str) -> str:
    return f"""(float[cached,2] x, int64 offset, float scale) => (int64[n] y)
    <int64 four = {{4}}, int64 none = {{0}}, int64 one = {{1}}, int64 two = {{2}}, float zero = {{0.0}},
     float half = {{0.5}}, float unit = {{1.0}}, int64[1] axis = {{0}}> {{
        shape = Shape<start = 0, end = 1>(x)
        cached = Squeeze(shape)
        {body}
    }}"""


COUNTED = {
    "over cached and new frames": "a = Sub(offset, cached)  b = Add(offset, four)  y = Range(a, b, one)",
    "over new frames": "b = Add(four, offset)  y = Range(offset, b, one)",
    "over cached frames": "a = Sub(offset, cached)  y = Range(a, offset, one)",
    "over twice as many": "a = Sub(offset, cached)  b = Add(offset, cached)  y = Range(a, b, one)",
    "over none": "b = Sub(offset, four)  y = Range(offset, b, one)",
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_start_in_common_is_added_behind(name: str) -> None:
    model = parse(graph(COUNTED[name]), {})
    graphs.infer_shapes(model)
    before = graphs.clone(model)
    (node,) = [each for each in model.graph if each.op_type == "Range"]
    assert count_from_zero(model, node, "test")
    graphs.prune(model)
    for cached, offset in ((3, 7), (1, 0), (5, -2)):
        feed = {"x": np.zeros((cached, 2), np.float32), "offset": np.array(offset), "scale": np.array(1.0, np.float32)}
        runs = [open_session(graphs.serialized(each)).run(["y"], feed)[0].tolist() for each in (before, model)]
        assert runs[0] == runs[1], (cached, offset)


FLOATS = {
    "cast": "a = Cast<to = 1>(none)  b = Cast<to = 1>(cached)  c = Cast<to = 1>(one)  r = Range(a, b, c)",
    "with constants": "b = Cast<to = 1>(cached)  r = Range(zero, b, unit)",
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_that_are_whole_are_counted_as_such(name: str) -> None:
    model = parse(graph(FLOATS[name] + "  y = Cast<to = 7>(r)"), {})
    graphs.infer_shapes(model)
    (node,) = [each for each in model.graph if each.op_type == "Range"]
    assert count_whole_numbers(model, node, "test")
    graphs.prune(model)
    feed = {"x": np.zeros((5, 2), np.float32), "offset": np.array(1), "scale": np.array(1.0, np.float32)}
    assert open_session(graphs.serialized(model)).run(["y"], feed)[0].tolist() == [0, 1, 2, 3, 4]


LEFT = {
    "from a size": "b = Add(cached, four)  y = Range(cached, b, one)",
    "in other steps": "b = Add(offset, four)  y = Range(offset, b, two)",
    "up to data": "y = Range(four, offset, one)",
    "between two data": "s = Cast<to = 7>(scale)  y = Range(offset, s, one)",
    "in halves": "b = Cast<to = 1>(cached)  r = Range(zero, b, half)  y = Cast<to = 7>(r)",
    "from a float of data": "b = Cast<to = 1>(cached)  r = Range(scale, b, unit)  y = Cast<to = 7>(r)",
}


@pytest.mark.parametrize("name", LEFT)
def test_others_stay(name: str) -> None:
    model = parse(graph(LEFT[name]), {})
    graphs.infer_shapes(model)
    before = ops_of(model)
    (node,) = [each for each in model.graph if each.op_type == "Range"]
    assert not count_from_zero(model, node, "test") and not count_whole_numbers(model, node, "test")
    assert ops_of(model) == before


def cut_table(ends: str, rows: str, axis: int) -> ir.Model:
    """Y = table[:, first:last], with the ends as written."""
    text = f"""(float[cached,2] x, int64 offset, int64 other, float[12,12,2] table) => (float[a,b,c] y)
    <int64 four = {{4}}, int64 nothing = {{0}}, int64[1] axis = {{{axis}}}, int64[1] one = {{1}}> {{
        shape = Shape<start = 0, end = 1>(x)
        cached = Squeeze(shape)
        {ends}
        front = Reshape(first, one)
        list = Reshape(last, one)
        only = Gather(list, nothing)
        back = Reshape(only, one)
        y = Slice({rows}, front, back, axis)
    }}"""
    model = parse(text, random_weights({"table": (12, 12, 2)}))
    graphs.infer_shapes(model)
    return model


RUNS = {
    "of a fixed number": "first = Identity(offset)  last = Add(four, offset)",
    "of as many as are cached": "first = Identity(offset)  last = Add(offset, cached)",
    "over cached and new ones": "first = Sub(offset, cached)  last = Add(offset, four)",
    "of none": "first = Identity(offset)  last = Sub(offset, four)",
}


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("name", RUNS)
def test_rows_of_a_table_from_a_start_that_is_data_are_looked_up(name: str, axis: int) -> None:
    model = cut_table(RUNS[name], "table", axis)
    before = graphs.clone(model)
    (node,) = [each for each in model.graph if each.op_type == "Slice"]
    assert look_up_run(model, node, "test")
    graphs.prune(model)
    assert "Slice" not in ops_of(model)
    for cached, offset in ((3, 7), (1, 4), (5, 5)):
        feed = {"x": np.zeros((cached, 2), np.float32), "offset": np.array(offset), "other": np.array(1)}
        runs = [open_session(graphs.serialized(each)).run(["y"], feed)[0] for each in (before, model)]
        np.testing.assert_array_equal(*runs)


@pytest.mark.parametrize(
    ("ends", "rows"),
    [
        ("first = Identity(offset)  last = Add(other, four)", "table"),
        ("first = Identity(offset)  last = Add(offset, offset)", "table"),
        ("first = Identity(nothing)  last = Add(nothing, cached)", "table"),
        ("first = Identity(offset)  last = Add(offset, four)  wide = Unsqueeze(x, one)", "wide"),
    ],
)
def test_other_cuts_stay(ends: str, rows: str) -> None:
    model = cut_table(ends, rows, 0)
    (node,) = [each for each in model.graph if each.op_type == "Slice"]
    assert not look_up_run(model, node, "test")


@pytest.mark.parametrize(
    ("first", "least", "is_looked_up"),
    [("Identity(offset)", -1, False), ("Add(offset, one)", -1, True), ("Add(offset, one)", -2, False)],
)
def test_rows_from_a_start_below_zero_are_not_looked_up(first: str, least: int, is_looked_up: bool) -> None:
    """A Slice from -1 to 0 has no row, and a lookup at -1 the last one."""
    model = cut_table(f"first = {first}  last = Add(first, four)", "table", 0)
    (node,) = [each for each in model.graph if each.op_type == "Slice"]
    assert look_up_run(model, node, "test", {"offset": least}) == is_looked_up
