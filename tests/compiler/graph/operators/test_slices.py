"""Every legal spelling of a Slice gives the same view."""

import itertools

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.operators.slices import AxisSlice, slice_of
from tests.kit.graphs import node_named, parse


def _spellings() -> list[str]:
    """Slice of the first two axes in every spelling; an operand at the end is left out or not there."""
    found = []
    for axes, steps in itertools.product(["", "front", "back"], ["", "ones"]):
        operands = ["x", "starts", "ends", axes, steps]
        found.append(", ".join(operands))
        while not operands[-1]:
            operands.pop()
            found.append(", ".join(operands))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("operands", _spellings())
def test_spellings_of_a_slice(operands: str) -> None:
    assert _axis_slices(operands) == (AxisSlice(0, 1, 5, 1), AxisSlice(1, -3, graphs.END, 1))


def _axis_slices(operands: str) -> tuple[AxisSlice, ...] | None:
    model = parse(
        f"""(float[batch,time,8] x, int64[2] given) => (float[a,b,8] y)
        <int64[2] starts = {{1, -3}}, int64[2] ends = {{5, {graphs.END}}}, int64[2] front = {{0, 1}},
         int64[2] back = {{-3, -2}}, int64[2] ones = {{1, 1}}, int64[1] one = {{1}}, int64[2] third = {{2, -2}}>
        {{ y = Slice({operands}) }}"""
    )
    view = slice_of(node_named(model, "y"))
    assert view is not None
    return view.axis_slices(graphs.integers_of)


def test_what_is_not_known() -> None:
    assert _axis_slices("x, starts, given") == (AxisSlice(0, 1, None, 1), AxisSlice(1, -3, None, 1))
    assert _axis_slices("x, given, ends, third, starts") == (
        AxisSlice(1, None, graphs.END, -3),
        AxisSlice(2, None, 5, 1),
    )
    assert _axis_slices("x, starts, ends, given") is None
    assert _axis_slices("x, starts, ends, one") is None
    assert AxisSlice(0, None, 3, 1).as_slice is None and AxisSlice(0, -1, 3, -1).as_slice == slice(-1, 3, -1)


def test_axes_of_a_cut_along_others_are_of_the_type_of_its_bounds() -> None:
    model = parse(
        """(float[2,8] x) => (float[a,b] y) <int32[1] start = {1}, int32[1] end = {5}, int32[1] axis = {-1}>
        { y = Slice(x, start, end, axis) }"""
    )
    view = slice_of(node_named(model, "y"))
    assert view is not None and view.kind == ir.DataType.INT32


def test_other_nodes_have_no_view() -> None:
    model = parse("(float[4] x) => (float[4] y) { y = Relu(x) }")
    assert slice_of(node_named(model, "y")) is None and slice_of(None) is None


def test_bounds_of_an_axis_have_one_spelling() -> None:
    """Whole axes are not cut; where the size is known bounds count from the front; far ones are the end."""
    model = parse(
        """(float[batch,time,8] x) => (float[a,b,c] y)
        <int32[3] starts = {0, -3, -8}, int32[3] ends = {2147483647, 2147483647, -1}>
        { y = Slice(x, starts, ends) }"""
    )
    view = slice_of(node_named(model, "y"))
    assert view is not None
    assert view.axis_slices(graphs.integers_of) == (AxisSlice(1, -3, graphs.END, 1), AxisSlice(2, 0, 7, 1))


@pytest.mark.parametrize(
    ("start", "end", "kept"), [(0, graphs.END, [3, 4, 5]), (-2, 2**31 - 1, [4, 5]), (0, -1, [3, 4])]
)
def test_entries_of_a_list(start: int, end: int, kept: list[int]) -> None:
    model = parse(
        f"""(int64[3] x) => (int64[a] y) <int64[1] start = {{{start}}}, int64[1] stop = {{{end}}}>
        {{ y = Slice(x, start, stop) }}"""
    )
    view = slice_of(node_named(model, "y"))
    assert view is not None
    assert view.picked([3, 4, 5], graphs.integers_of) == kept
