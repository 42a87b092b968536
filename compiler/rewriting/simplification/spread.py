"""Finds values that repeat entries along axes, and for each one the smaller value that broadcasts to it.

new = Transpose(Expand(0.0, [batch, 2, 8]))     is 0.0 everywhere
new = Expand(v [8], [batch, 2, 8])              is v at every place of the first two axes
"""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import perm_of
from compiler.rewriting.simplification.constants import constant_of
from compiler.rewriting.simplification.rules import Candidate

MOVING = ("Expand", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Slice", "Identity")
"""A list of its own: operators that leave one number everywhere one number everywhere."""


def number_of(candidate: Candidate, value: ir.Value | None) -> ir.Value | None:
    """Return the one entry that a value holds everywhere, as a scalar; None where it may hold several."""
    while value is not None:
        number, made = _number(value), value.producer()
        if number is not None:
            return candidate.insert.constant(number, "number")
        if _has_one_entry(value):
            scalar = candidate.insert.constant(np.zeros(0, np.int64), "scalar")
            return candidate.insert.op("Reshape", [value, scalar], name="number", dtype=value.dtype)
        value = made.inputs[0] if made is not None and graphs.is_op(made, *MOVING) else None
    return None


def _has_one_entry(value: ir.Value) -> bool:
    """Whether every axis has size 1; shape inference has not seen values that a rule has just made."""
    dims, made = graphs.dims_of(value), value.producer()
    if dims is None and made is not None and graphs.is_op(made, "Cast") and made.inputs[0] is not None:
        return _has_one_entry(made.inputs[0])
    return dims is not None and all(dim == 1 for dim in dims)


def _number(value: ir.Value) -> np.ndarray | None:
    """Return the single number of a constant, as a scalar; None for other values."""
    made, array = value.producer(), constant_of(value)
    if array is None and graphs.is_op(made, "ConstantOfShape") and made is not None:
        given = graphs.attribute(made, "value")
        array = given.numpy() if isinstance(given, ir.TensorProtocol) else np.zeros(1, np.float32)
    if array is None or array.size == 0 or array.dtype.kind not in "biuf":
        return None
    first = array.reshape(-1)[:1]
    return first.reshape(()) if array.tobytes() == first.tobytes() * array.size else None


def spread_from(candidate: Candidate, value: ir.Value, axes: Collection[int]) -> ir.Value | None:
    """Return a value that broadcasts to another and is constant along some axes; None where none is known.

    Args:
        candidate: the node in front of which new values are put.
        value: e.g. an Expand, transposed or not.
        axes: counted from the front.
    """
    number = number_of(candidate, value)
    if number is not None:
        return number
    transposed = value.producer() if graphs.is_op(value.producer(), "Transpose") else None
    source = value if transposed is None else transposed.inputs[0]
    maker = None if source is None else source.producer()
    if source is None or maker is None or not graphs.is_op(maker, "Expand") or maker.inputs[0] is None:
        return None
    dims, inside = graphs.dims_of(source), graphs.dims_of(maker.inputs[0])
    if dims is None or inside is None or len(inside) > len(dims):
        return None
    order = tuple(range(len(dims))) if transposed is None else perm_of(transposed, len(dims))
    shift = len(dims) - len(inside)
    own_axes = [axis + shift for axis, dim in enumerate(inside) if dim != 1]
    keeps = all(axis < len(order) and order[axis] == axis and axis not in axes for axis in own_axes)
    return maker.inputs[0] if keeps else None


CHOSEN = (
    ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.INT32, ir.DataType.UINT8
)  # fmt: skip
"""A list of its own: types of which ONNX Runtime has a Where; of bool it has none."""


def chosen(candidate: Candidate, mask: ir.Value, new: ir.Value, data: ir.Value) -> ir.Value | None:
    """Return `new` where the mask holds, else `data`; None for types that Where does not support."""
    insert = candidate.insert
    if new.dtype != data.dtype:
        return None
    if data.dtype == ir.DataType.BOOL:
        kept = insert.op("And", [insert.op("Not", [mask], name="is_kept"), data], name="kept")
        return insert.op("Or", [insert.op("And", [mask, new], name="new"), kept], name="written", dtype=data.dtype)
    return insert.op("Where", [mask, new, data], name="written", dtype=data.dtype) if data.dtype in CHOSEN else None
