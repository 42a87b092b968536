"""Lookups whose table, indices or both differ from row to row, and shapes, which are those of one row."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.passes.add_batch_axis import AddBatchAxis
from tests.kit.graphs import ops_of, random_weights
from tests.kit.one_row import check_rows, one_row

SHAPES = [("1,t,4", 0), ("t,1,4", 1), ("3,t,4", None)]


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("indices", ["int64 i = {0}", "int64[1] i = {0}", "int64[1,2] i = {0, -1}"])
def test_known_indices(indices: str, axis: int, dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x) => (float[o] y) <{indices}> {{ y = Gather<axis = {axis}>(x, i) }}"
    check_rows(one_row(text, {"x": place, "y": None}))


def test_the_only_row_needs_no_node() -> None:
    text = "(float[1,4] x) => (float[4] y) <int64 i = {0}> { z = Relu(x)  y = Gather<axis = 0>(z, i) }"
    outcome = check_rows(one_row(text, {"x": 0, "y": None}))
    assert ops_of(outcome.lowered.model) == ["Relu"]


@pytest.mark.parametrize(("dims", "place"), [("t", None), ("1,t", 0), ("t,1", 1)])
@pytest.mark.parametrize("axis", [0, 1])
def test_tables_that_all_rows_share(axis: int, dims: str, place: int | None) -> None:
    text = f"(int64[{dims}] x, float[5,6] w) => (float[o] y) {{ y = Gather<axis = {axis}>(w, x) }}"
    check_rows(one_row(text, {"x": place, "y": None}, random_weights({"w": (5, 6)})))


@pytest.mark.parametrize(
    ("data", "indices", "axis"), [("3,4", "2", 0), ("3,4", "2", 1), ("3,4,5", "2,2", 1), ("3", "2", 0)]
)
def test_both_of_each_row(data: str, indices: str, axis: int) -> None:
    text = f"(float[{data}] x, int64[{indices}] i) => (float[o] y) {{ y = Gather<axis = {axis}>(x, i) }}"
    check_rows(one_row(text, {"x": None, "i": None, "y": None}))


@pytest.mark.parametrize(("data", "place", "axis"), [("3,4", None, 0), ("1,4", 0, 1), ("1,4", 0, 0)])
def test_elements(data: str, place: int | None, axis: int) -> None:
    text = f"""(float[{data}] x, int64[{data}] i) => (float[o] y) <int64 n = {{1}}>
    {{ z = Mod(i, n)  y = GatherElements<axis = {axis}>(x, z) }}"""
    check_rows(one_row(text, {"x": place, "i": place, "y": None}))


def test_elements_at_known_places() -> None:
    text = "(float[3,4] x, int64[3,4] i) => (float[o] y) { y = GatherElements<axis = 1>(x, i) }"
    places = np.array([[3, 2, 1, 0]] * 3, np.int64)
    check_rows(one_row(text, {"x": None, "y": None}, {"i": places}))


def test_tuples() -> None:
    text = "(float[3,4] x, int64[2,2] i) => (float[o] y) { y = GatherND(x, i) }"
    check_rows(one_row(text, {"x": None, "i": None, "y": None}))
    check_rows(one_row(text, {"x": None, "y": None}, {"i": np.array([[0, 1], [2, 3]], np.int64)}))


@pytest.mark.parametrize(
    ("data", "updates", "place", "tuples"), [("9,4", "2,4", None, "{1, 5}"), ("1,9,4", "1,4", 0, "{0, 5}")]
)
def test_entries_that_are_overwritten(data: str, updates: str, place: int | None, tuples: str) -> None:
    """The rows are behind all axes while entries are written; pad_axes has no proof for that yet."""
    shape = "2,1" if place is None else "1,2"
    text = f"""(float[{data}] x, float[{updates}] u) => (float[o] y) <int64[{shape}] i = {tuples}>
    {{ y = ScatterND(x, i, u) }}"""
    check_rows(one_row(text, {"x": place, "u": place, "y": None}), proved=False)


@pytest.mark.parametrize(
    ("data", "indices", "updates"),
    [
        ("9,4", "1,1", "1,4"),
        ("9,4", "1", "4"),
        ("9,4", "1,2", "1"),
        ("9,4", "2,1,1", "2,1,4"),
        ("9,1,4", "1,1", "1,1,4"),
    ],
)
def test_entries_that_every_row_overwrites_elsewhere(data: str, indices: str, updates: str) -> None:
    text = f"""(float[{data}] x, int64[{indices}] i, float[{updates}] u) => (float[o] y) <int64 n = {{4}}>
    {{ at = Mod(i, n)  y = ScatterND(x, at, u) }}"""
    check_rows(one_row(text, {"x": None, "i": None, "u": None, "y": None}))


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("read", ["", "<start = 0, end = 1>", "<start = 1, end = 3>", "<start = -1>"])
def test_a_shape_is_that_of_one_row(read: str, dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x) => (int64[o] y, float[p] z) {{ s = Shape{read}(x)  y = Identity(s)  z = Identity(x) }}"
    check_rows(one_row(text, {"x": place, "y": None, "z": place}))


def test_a_shape_that_is_an_output() -> None:
    check_rows(one_row("(float[t,4] x) => (int64[2] y) { y = Shape(x) }", {"x": None, "y": None}))


def test_the_number_of_entries() -> None:
    text = "(float[1,3,4] x) => (float[o] y) { n = Size(x)  f = Cast<to = 1>(n)  y = Div(x, f) }"
    check_rows(one_row(text, {"x": 0, "y": 0}))
    with pytest.raises(Refused, match="Size of a value of unknown size"):
        AddBatchAxis().apply(one_row(text.replace("1,3,4", "1,t,4"), {"x": 0, "y": 0}))
