"""States that hold codes are told by the graph, and read in the numbers that they stand for."""

import numpy as np
import pytest

from compiler.graph.runners.coded_states import Codes, codes_of, outputs_in_numbers, states_in_numbers
from compiler.graph.stages import Array, Lowered, State
from tests.kit.graphs import parse

PARAMETERS: dict[str, Array] = {
    "scales": np.array([0.5, 2.0], np.float32), "zeros": np.zeros(2, np.int8), "four": np.array(4.0, np.float32),
    "three": np.array(3, np.uint8), "none": np.array(0, np.int8),
}  # fmt: skip

WRITTEN = {
    "as they are": "numbers = DequantizeLinear<axis = -2>(cache, scales, zeros) "
    "next = QuantizeLinear<axis = 1>(numbers, scales, zeros)",
    "joined": "new = QuantizeLinear<axis = -2>(x, scales, zeros)  all = Concat<axis = 2>(cache, new) "
    "next = Slice(all, three_places, end, two)",
    "one scale": "new = QuantizeLinear(x, four, three)  all = Concat<axis = 2>(cache, new) "
    "turned = Transpose<perm = [0, 2, 1]>(all)  newest = Slice(turned, three_places, end, one) "
    "next = Transpose<perm = [0, 2, 1]>(newest)",
    "computed grid": "own = Add(four, four)  next = QuantizeLinear(x, own, none)",
    "two grids": "a = QuantizeLinear(x, four, none)  b = QuantizeLinear<axis = 1>(x, scales, zeros) "
    "wide = Concat<axis = 2>(a, b)  next = Slice(wide, three_places, end, two)",
    "computed codes": "next = Add(cache, cache)",
    "never written": "next = Identity(cache)",
    "axis that is moved": "new = QuantizeLinear<axis = 1>(x, scales, zeros) next = Reshape(new, shape)",
}


def carrying(how: str, kind: str = "int8") -> Lowered:
    """A state of integers."""
    text = f"""(float[batch,2,3] x, {kind}[batch,2,3] cache, float[2] scales, int8[2] zeros, float four, uint8 three,
      int8 none) => ({kind}[batch,2,3] next)
    <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three_places = {{3}}, int64[1] end = {{9223372036854775807}},
     int64[3] shape = {{0, 2, 3}}>
    {{ {WRITTEN[how]} }}"""
    return Lowered("net", parse(text, PARAMETERS), states=(State("cache", "next", None),))


@pytest.mark.parametrize("how", ["as they are", "joined"])
def test_codes_are_read_by_the_axis_of_their_scales(how: str) -> None:
    codes = np.array([[[1, 2, -3], [4, -5, 127]]], np.int8)
    numbers = [[[0.5, 1.0, -1.5], [8.0, -10.0, 254.0]]]
    lowered = carrying(how)
    assert states_in_numbers(lowered, {"cache": codes})["cache"].tolist() == numbers
    assert outputs_in_numbers(lowered, {"next": codes})["next"].tolist() == numbers
    grid = codes_of(lowered, "cache")
    assert grid is not None
    assert grid.axis == 1
    assert np.array_equal(grid.codes(np.array(numbers)), codes)


def test_codes_of_one_scale_may_move_as_they_like_and_zero_may_be_any_code() -> None:
    codes = np.array([[[3, 4, 0], [255, 2, 3]]], np.uint8)
    lowered = carrying("one scale", "uint8")
    got = states_in_numbers(lowered, {"cache": codes})["cache"]
    assert got.tolist() == [[[0.0, 4.0, -12.0], [1008.0, -4.0, 0.0]]]


@pytest.mark.parametrize("how", ["computed grid", "two grids", "computed codes", "never written", "axis that is moved"])
def test_integers_that_are_written_otherwise_are_no_codes(how: str) -> None:
    lowered = carrying(how)
    assert codes_of(lowered, "cache") is None
    codes = np.array([[[1, 2, -3], [4, -5, 127]]], np.int8)
    assert states_in_numbers(lowered, {"cache": codes})["cache"] is codes


def test_what_lies_outside_is_cut_off() -> None:
    numbers = np.array([1e30, -1e30, 0.26, np.inf, np.nan])
    assert Codes(np.array(0.5, np.float32), 0).codes(numbers).tolist() == [127, -128, 1, 127, 0]
    assert Codes(np.array(0.5, np.float32), 0, 7, signed=False).codes(numbers).tolist() == [255, 0, 8, 255, 7]
