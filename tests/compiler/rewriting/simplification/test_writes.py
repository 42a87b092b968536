"""writes: the same bits before and after, and no write left where the places are known."""

import numpy as np
import pytest

from compiler.graph.stages import Array
from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

X = np.array([0.0, -0.0, 1.0, np.nan, 1e-30, np.inf, 7.0, -2.5, 9.0, 3.0, 4.0, 5.0], np.float32)

ROWS = {
    "in front": ("{0, 1}", False),
    "in the middle": ("{3, 4}", False),
    "at the end": ("{10, 11}", False),
    "counted from the end": ("{-2, -1}", False),
    "with a gap": ("{3, 5}", False),
    "backwards": ("{4, 3}", False),
    "twice": ("{3, 3}", True),
    "twice, once from the end": ("{3, -9}", True),
    "across the end": ("{11, 0}", False),
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


SIZE = "s = Shape<start = 0, end = 1>(x)  n = Squeeze(s)  count = Range(nought, n, single)"
RUNS = {
    "from the first on": "{0}, int64[1] end = {3}",
    "to the last": "{2}, int64[1] end = {9223372036854775807}",
    "the last two": "{-2}, int64[1] end = {2147483647}",
    "between": "{1}, int64[1] end = {4}",
    "all but the first and the last": "{1}, int64[1] end = {-1}",
    "counted from the end": "{-3}, int64[1] end = {-1}",
    "beyond the end": "{20}, int64[1] end = {30}",
}
CONSTANTS = """int64[1] zero = {0}, int64[1] one = {1}, int64 nought = {0}, int64 single = {1}, int64[1] last = {-1},
    float seven = {7.0}"""


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("name", RUNS)
def test_runs_of_an_axis_of_any_length(name: str, size: int) -> None:
    text = f"""(float[n,2] x, float[n,2] v) => (float[n,2] y) <int64[1] start = {RUNS[name]}, {CONSTANTS}>
        {{ {SIZE}  at = Slice(count, start, end, zero, one)  rows = Unsqueeze(at, last)
        new = Slice(v, start, end, zero)  y = ScatterND(x, rows, new) }}"""
    x = np.resize(X, (size, 2))
    assert "ScatterND" not in ops_of(agree(parse(text), {"x": x, "v": x[::-1].copy()}))


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("name", RUNS)
def test_one_number_is_chosen_by_place(name: str, size: int) -> None:
    text = f"""(float[n,2] x) => (float[n,2] y) <int64[1] start = {RUNS[name]}, {CONSTANTS}>
        {{ {SIZE}  at = Slice(count, start, end, zero, one)  rows = Unsqueeze(at, last)
        old = Slice(x, start, end, zero)  sizes = Shape(old)  new = Expand(seven, sizes)
        y = ScatterND(x, rows, new) }}"""
    simple = ops_of(agree(parse(text), {"x": np.abs(np.resize(X, (size, 2)))}))
    assert "Where" in simple and "ScatterND" not in simple


STAYING = {
    "in steps": ("{0}, int64[1] end = {5}, int64[1] steps = {2}", "none"),
    "backwards": ("{4}, int64[1] end = {0}, int64[1] steps = {-1}", "none"),
    "from the end to the front": ("{-3}, int64[1] end = {5}, int64[1] steps = {1}", "none"),
    "added": ("{0}, int64[1] end = {3}, int64[1] steps = {1}", "add"),
}


@pytest.mark.parametrize("name", STAYING)
def test_runs_of_another_kind_stay(name: str) -> None:
    bounds, reduction = STAYING[name]
    text = f"""(float[n,2] x, float[n,2] v) => (float[n,2] y) <int64[1] start = {bounds}, {CONSTANTS}>
        {{ {SIZE}  at = Slice(count, start, end, zero, steps)  rows = Unsqueeze(at, last)
        new = Slice(v, start, end, zero, steps)  y = ScatterND<reduction = "{reduction}">(x, rows, new) }}"""
    x = X.reshape(6, 2)
    assert "ScatterND" in ops_of(agree(parse(text), {"x": x, "v": x[::-1].copy()}))


BLOCK = """s = Shape(x)  b = Gather(s, nought)  n = Gather(s, single)  rows = Range(nought, b, single)
    count = Range(nought, n, single)  at = Slice(count, start, end, zero, one)  r = Reshape(rows, column)
    grid = Add(r, at)  sizes = Shape(grid)  r1 = Expand(r, sizes)  r2 = Unsqueeze(r1, last)  a1 = Expand(at, sizes)
    a2 = Unsqueeze(a1, last)  places = Concat<axis = -1>(r2, a2)"""


@pytest.mark.parametrize("size", [3, 4, 6])
def test_a_block_whose_places_are_listed_one_by_one(size: int) -> None:
    """As older exporters write x[:, 1:-1] = v: indices [batch, entries, 2]."""
    text = f"""(float[b,n,2] x, float[b,n,2] v) => (float[b,n,2] y)
        <int64[1] start = {{1}}, int64[1] end = {{-1}}, int64[2] column = {{-1, 1}}, {CONSTANTS}>
        {{ {BLOCK}  new = Slice(v, start, end, one)  y = ScatterND(x, places, new) }}"""
    x = np.resize(X, (2, size, 2))
    assert "ScatterND" not in ops_of(agree(parse(text), {"x": x, "v": x[::-1].copy()}))


def test_a_row_that_is_written_again_and_again_stays() -> None:
    text = f"""(float[b,n,2] x, float[b,k,2] new, int64[k] like) => (float[b,n,2] y)
        <int64[2] column = {{-1, 1}}, int64[1] front = {{0}}, int64[1] end = {{1}}, int64[1] start = {{0}}, {CONSTANTS}>
        {{ s = Shape(x)  b = Gather(s, nought)  rows = Range(nought, b, single)  r = Reshape(rows, column)
        grid = Add(r, like)  sizes = Shape(grid)  r1 = Expand(r, sizes)  r2 = Unsqueeze(r1, last)
        a1 = Expand(front, sizes)  a2 = Unsqueeze(a1, last)  places = Concat<axis = -1>(r2, a2)
        y = ScatterND(x, places, new) }}"""
    feeds: dict[str, Array] = {"x": X.reshape(2, 3, 2), "new": X[:4].reshape(2, 1, 2), "like": np.zeros(1, np.int64)}
    assert "ScatterND" in ops_of(agree(parse(text), feeds))


def test_places_up_to_a_computed_size() -> None:
    text = f"""(float[n,2] x, float[m] z) => (float[n,2] y) <{CONSTANTS}>
        {{ {SIZE}  end = Shape(z)  at = Slice(count, zero, end, zero, one)  rows = Unsqueeze(at, last)
        new = Slice(x, zero, end, zero)  turned = Neg(new)  y = ScatterND(x, rows, turned) }}"""
    for entries in (0, 1, 4, 9):
        feeds = {"x": X.reshape(6, 2), "z": np.zeros(entries, np.float32)}
        assert "ScatterND" not in ops_of(agree(parse(text), feeds))


def test_flags_are_chosen_without_where() -> None:
    text = f"""(bool[n] x) => (bool[n] y) <bool yes = {{1}}, int64[1] end = {{3}}, {CONSTANTS}>
        {{ {SIZE}  at = Slice(count, zero, end, zero, one)  rows = Unsqueeze(at, last)
        old = Slice(x, zero, end, zero)  sizes = Shape(old)  new = Expand(yes, sizes)  y = ScatterND(x, rows, new) }}"""
    simple = ops_of(agree(parse(text), {"x": np.array([True, False, False, True, False])}))
    assert "ScatterND" not in simple and "Where" not in simple


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
