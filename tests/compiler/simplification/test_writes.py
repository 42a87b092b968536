"""writes: the same bits before and after, and no write left where the places are known."""

import numpy as np
import pytest

from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

X = np.array([0.0, -0.0, 1.0, np.nan, 1e-30, np.inf, 7.0, -2.5, 9.0, 3.0, 4.0, 5.0], np.float32)

ROWS = {
    "in front": ("{0, 1}", False),
    "in the middle": ("{3, 4}", False),
    "at the end": ("{10, 11}", False),
    "counted from the end": ("{-2, -1}", False),
    "with a gap": ("{3, 5}", True),
    "backwards": ("{4, 3}", True),
    "twice": ("{3, 3}", True),
    "across the end": ("{11, 0}", True),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_at_fixed_places(name: str) -> None:
    places, stays = ROWS[name]
    text = f"""(float[12] x) => (float[12] y) <int64[2,1] rows = {places}, int64[2] at = {{6, 0}}>
        {{ new = Gather(x, at)  y = ScatterND(x, rows, new) }}"""
    simple = agree(parse(text), {"x": X})
    assert ("ScatterND" in ops_of(simple)) == stays


def test_rows_that_are_added_stay() -> None:
    text = """(float[12] x) => (float[12] y) <int64[2,1] rows = {3, 4}, int64[2] at = {6, 0}>
        { new = Gather(x, at)  y = ScatterND<reduction = "add">(x, rows, new) }"""
    assert "ScatterND" in ops_of(agree(parse(text), {"x": X}))


EVERY = """(float[n] x) => (float[n] y) <int64 none = {0}, int64 first = {FIRST}, int64 step = {STEP},
    int64[1] last = {1}>
    { s = Shape(x)  n = Gather(s, none)  end = Add(n, first)  r = Range(first, end, step)  rows = Unsqueeze(r, last)
    new = Neg(x)  y = ScatterND(x, rows, new) }"""


def test_every_row() -> None:
    text = EVERY.replace("FIRST", "0").replace("STEP", "1")
    assert ops_of(agree(parse(text), {"x": X})) == ["Neg"]


def test_rows_counted_otherwise_stay() -> None:
    text = EVERY.replace("FIRST", "-12").replace("STEP", "1")
    assert "ScatterND" in ops_of(agree(parse(text), {"x": X}))


PLACES = {
    "the last": ("{3}", '"none"', False),
    "counted from the end": ("{-1}", '"none"', False),
    "the first": ("{0}", '"none"', False),
    "added": ("{3}", '"add"', True),
}


@pytest.mark.parametrize("name", PLACES)
def test_one_place_of_every_row(name: str) -> None:
    place, reduction, stays = PLACES[name]
    text = f"""(float[n,4] x) => (float[n,4] y) <int64 at = {place}, int64 two = {{2}}, int64[1] last = {{1}},
        int64[1] zero = {{0}}, int64[1] one = {{1}}>
        {{ new = Slice(x, zero, one, last)  sizes = Shape(new)  places = Expand(at, sizes)
        y = ScatterElements<axis = 1, reduction = {reduction}>(x, places, new) }}"""
    simple = agree(parse(text), {"x": X.reshape(3, 4)})
    assert ("ScatterElements" in ops_of(simple)) == stays


def test_fewer_rows_than_there_are_keep_the_others() -> None:
    text = """(float[n,4] x, float[k,1] new) => (float[n,4] y) <int64 at = {3}>
        { sizes = Shape(new)  places = Expand(at, sizes)  y = ScatterElements<axis = 1>(x, places, new) }"""
    simple = agree(parse(text), {"x": X.reshape(3, 4), "new": X[:2].reshape(2, 1)})
    assert "ScatterElements" in ops_of(simple)
