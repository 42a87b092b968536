"""Finds the initial state of a recurrent layer where it is one row of constants that is broadcast over the batch.

    h0 [2, 1, width]  Expand -> [2, batch, width]  Slice(:1) -> [1, batch, width]

begins with h0[:1] in every row. One row is followed from the constant on, through movements that leave rows whole.
"""

import math

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import dims
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, perm_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import VIEWS

Array = np.ndarray

SPREADING = frozenset({"Expand", "Tile"})
"""A list of its own: operators that repeat their operand as often as sizes say."""


def first_state(value: ir.Value | None, rows: Dim) -> Array | None:
    """Return one row of a value whose rows are all equal, for any number of rows; None where that is not known.

    Args:
        value: a value of a graph with symbolic shapes.
        rows: the size of the axis of rows, which is 1 in the result.
    """
    array, sizes = graphs.array_of(value), None if value is None else _one_row(value, rows)
    if array is not None or value is None or sizes is None:
        return array
    node = value.producer()
    row = None if node is None else _made(node, rows, sizes)
    return row if row is not None and list(row.shape) == sizes else None


def _one_row(value: ir.Value, rows: Dim) -> list[int] | None:
    """Return the sizes of a value for one row; None where another axis has no known size."""
    sizes = [1 if dim == rows else dim for dim in graphs.dims_of(value) or ("unknown",)]
    numbers = [size for size in sizes if isinstance(size, int)]
    return numbers if len(numbers) == len(sizes) and dims(value).count(rows) <= 1 else None


def _made(node: ir.Node, rows: Dim, sizes: list[int]) -> Array | None:
    """Return the result of a constant or movement node for one row; None for any other node."""
    if graphs.is_op(node, "ConstantOfShape"):
        filled = graphs.attribute(node, "value")
        number = filled.numpy().reshape(()) if isinstance(filled, ir.TensorProtocol) else np.zeros((), np.float32)
        return np.full(sizes, number)
    operands = list(node.inputs) if graphs.is_op(node, "Concat") else [node.inputs[0]]
    operand_rows = [array for operand in operands if (array := first_state(operand, rows)) is not None]
    if len(operand_rows) < len(operands):
        return None
    if graphs.is_op(node, *SPREADING):
        return _spread(operand_rows[0], sizes)
    places = {_place(moved_value, rows) for moved_value in (*operands, node.outputs[0])}
    if graphs.is_op(node, "Cast"):
        return operand_rows[0].astype(node.outputs[0].dtype.numpy()) if node.outputs[0].dtype is not None else None
    return None if None in places else _moved(node, operand_rows, rows, sizes)


def _spread(array: Array, sizes: list[int]) -> Array | None:
    """Broadcast an array to sizes; None where they do not fit."""
    try:
        return np.broadcast_to(array, sizes)
    except ValueError:
        return None


def _moved(node: ir.Node, given: list[Array], rows: Dim, sizes: list[int]) -> Array | None:
    """Return the result of a movement on one row of its operands, all of which have the axis of rows."""
    (array, *_), row_axis = given, _place(node.inputs[0], rows)
    assert row_axis is not None
    if graphs.is_op(node, *VIEWS):
        return array.reshape(sizes) if _is_left_whole(node, rows) else None
    if graphs.is_op(node, "Transpose"):
        return np.transpose(array, perm_of(node, array.ndim))
    axis = axis_of(node, array.ndim)
    if graphs.is_op(node, "Concat"):
        return None if axis == row_axis else np.concatenate(given, axis)
    if graphs.is_op(node, "Gather"):
        index = graphs.array_of(node.inputs[1])
        return None if axis == row_axis or index is None else np.take(array, index, axis)
    view = slice_of(node)
    axis_slices = None if view is None else view.axis_slices(graphs.integers_of)
    if axis_slices is None or any(sliced.axis == row_axis or sliced.as_slice is None for sliced in axis_slices):
        return None
    for sliced in axis_slices:
        array = array.take(np.arange(array.shape[sliced.axis])[sliced.as_slice], sliced.axis)
    return array


def _place(value: ir.Value | None, rows: Dim) -> int | None:
    """Return the index of the axis of rows; None where there is none."""
    found = () if value is None else dims(value)
    return found.index(rows) if rows in found else None


def _is_left_whole(node: ir.Node, rows: Dim) -> bool:
    """Whether a reshape keeps each row's entries together: equally many entries lie in front of the axis of rows."""
    before, after = (dims(each) for each in (node.inputs[0], node.outputs[0]))
    return math.prod(before[: before.index(rows)]) == math.prod(after[: after.index(rows)])
