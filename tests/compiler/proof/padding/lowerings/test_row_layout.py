"""What holds per row is laid out as the operand has its rows."""

import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import ops_of
from tests.kit.offline import offline, verify_offline

MERGED = """(float[batch,time,4] x) => (float[batch,r,s] y) <int64[4] heads = {0, -1, 2, 2}, int64[3] rows = {-1, 2, 1}>
{ h = Reshape(x, heads)  t = Transpose<perm = [0, 2, 3, 1]>(h)  s = Shape(t)  n = Shape<start = 3, end = 4>(t)
  two = Constant<value_ints = [2]>()  shape = Concat<axis = 0>(less, two, n)  m = Reshape(t, shape)
  p = Pad<mode = "edge">(m, pads)  z = Abs(p)  wide = Shape<start = 2, end = 3>(z)
  b = Shape<start = 0, end = 1>(x)  whole = Concat<axis = 0>(b, four, wide)  y = Reshape(z, whole) }"""


def graph(text: str) -> str:
    """The graph with the constants of pads and shapes."""
    constants = "int64[6] pads = {0, 0, 0, 0, 0, 2}, int64[1] less = {-1}, int64[1] four = {4}, "
    return text.replace("<int64[4]", f"<{constants}int64[4]")


def test_rows_merged_with_heads_have_their_lengths_repeated() -> None:
    outcome = verify_offline(offline(graph(MERGED)))
    assert "rows_repeated" in {str(node.outputs[0].name) for node in outcome.lowered.model.graph}
    assert "GatherND" in ops_of(outcome.lowered.model)


def test_rows_by_themselves_need_no_repeating() -> None:
    text = """(float[batch,4,time] x) => (float[batch,4,r] y) <int64[6] pads = {0, 0, 0, 0, 0, 2}>
    { y = Pad<mode = "reflect">(x, pads) }"""
    outcome = verify_offline(offline(text))
    assert "rows_repeated" not in {str(node.outputs[0].name) for node in outcome.lowered.model.graph}


def test_a_value_that_all_rows_share_is_refused() -> None:
    text = """(float[batch,time] x, float[1,time] shared) => (float[batch,r] y) <int64[4] pads = {0, 0, 0, 2}>
    { p = Pad<mode = "reflect">(shared, pads)  q = Pad<mode = "reflect">(x, pads)  y = Add(p, q) }"""
    with pytest.raises(Refused, match="all rows share"):
        PadAxes().apply(offline(text))
