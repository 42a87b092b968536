"""Positions counted otherwise are those counted from 0 in whole numbers."""

import numpy as np
import pytest

from compiler import ir as house
from compiler.runners.session import open_session
from compiler.simplification.positions import count_from_zero, count_whole_numbers
from tests.kit.graphs import ops_of, parse


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
    house.infer_shapes(model)
    before = house.clone(model)
    (node,) = [each for each in model.graph if each.op_type == "Range"]
    assert count_from_zero(model, node, "test")
    house.prune(model)
    for cached, offset in ((3, 7), (1, 0), (5, -2)):
        feed = {"x": np.zeros((cached, 2), np.float32), "offset": np.array(offset), "scale": np.array(1.0, np.float32)}
        runs = [open_session(house.serialized(each)).run(["y"], feed)[0].tolist() for each in (before, model)]
        assert runs[0] == runs[1], (cached, offset)


FLOATS = {
    "cast": "a = Cast<to = 1>(none)  b = Cast<to = 1>(cached)  c = Cast<to = 1>(one)  r = Range(a, b, c)",
    "with constants": "b = Cast<to = 1>(cached)  r = Range(zero, b, unit)",
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_that_are_whole_are_counted_as_such(name: str) -> None:
    model = parse(graph(FLOATS[name] + "  y = Cast<to = 7>(r)"), {})
    house.infer_shapes(model)
    (node,) = [each for each in model.graph if each.op_type == "Range"]
    assert count_whole_numbers(model, node, "test")
    house.prune(model)
    feed = {"x": np.zeros((5, 2), np.float32), "offset": np.array(1), "scale": np.array(1.0, np.float32)}
    assert open_session(house.serialized(model)).run(["y"], feed)[0].tolist() == [0, 1, 2, 3, 4]


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
    house.infer_shapes(model)
    before = ops_of(model)
    (node,) = [each for each in model.graph if each.op_type == "Range"]
    assert not count_from_zero(model, node, "test") and not count_whole_numbers(model, node, "test")
    assert ops_of(model) == before
