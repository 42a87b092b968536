"""Finds the positions that a ScatterND writes, from its indices: along each axis all entries, a range, or a list.

    x[:, 2:5] = v     ->  indices [[[0, 2], [0, 3], [0, 4]], [[1, 2], ..], ..]  ->  axis 0: all, axis 1: 2 to 5
    x[..., 0::2] = v  ->  axis 2: every second entry from 0 on

Exporters write an assignment to a slice as Range, Slice, Expand and Concat of what counts along each axis.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.operators.axes import axis_of, changed_axes
from compiler.graph.operators.slices import END, Slice, slice_of
from compiler.graph.sizes.expressions import Dim, normal_form
from compiler.graph.sizes.growth import never_negative
from compiler.rewriting.simplification.constants import constant_of


@dataclasses.dataclass(frozen=True)
class Run:
    """Places one behind the other along an axis, as a Slice counts them.

    Attributes:
        start: the first place; negative ones count from the end.
        end: the place behind the last, never in front of the first; None for the end of the axis; a value where it is
            computed from sizes and not negative.
    """

    start: int
    end: int | ir.Value | None


@dataclasses.dataclass(frozen=True)
class Known:
    """Places that are numbers.

    Attributes:
        places: in the order in which they are written, int64 [n].
    """

    places: np.ndarray


Places = Run | Known

WHOLE = Run(0, None)
"""All entries of an axis."""


def written_places(indices: ir.Value, dims: Sequence[Dim]) -> list[Places] | None:
    """Return the places that indices select along each leading axis, every combination once.

    Args:
        indices: indices of a ScatterND, [n_0, .., n_(k-1), k].
        dims: the shape of the data.

    Returns:
        The places of each axis; None where the indices have another form.
    """
    shape = graphs.dims_of(indices)
    if not shape or shape[-1] != len(shape) - 1 or len(dims) < len(shape) - 1:
        return None
    rank = len(shape) - 1
    columns = _columns(indices, rank)
    if columns is None:
        return None
    by_axis = [
        _known(column, axis, dims[axis])
        if isinstance(column, np.ndarray)
        else _counted(column, rank - axis, dims[axis])
        for axis, column in enumerate(columns)
    ]
    places = [place for place in by_axis if place is not None]
    return places if len(places) == len(by_axis) else None


def _columns(indices: ir.Value, rank: int) -> list[ir.Value | np.ndarray] | None:
    """Return the indices along each axis: values [n_0, .., n_(k-1), 1], or arrays [n_0, .., n_(k-1)]; else None."""
    array = constant_of(indices)
    if array is not None:
        return [array[..., axis] for axis in range(rank)]
    maker = indices.producer()
    if rank == 1:
        return [indices]
    if maker is None or not graphs.is_op(maker, "Concat") or axis_of(maker, rank + 1) != rank:
        return None
    columns = [value for value in maker.inputs if value is not None]
    if len(columns) != rank or any((graphs.dims_of(value) or (0,))[-1] != 1 for value in columns):
        return None
    arrays = [constant_of(value) for value in columns]
    return [value if array is None else array[..., 0] for value, array in zip(columns, arrays, strict=True)]


def _known(array: np.ndarray, axis: int, size: Dim) -> Known | None:
    """Return the places of an array that varies along one axis only and has no number twice; else None."""
    along = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    if not along.size or (along != along[:, :1]).any():
        return None
    places = along[:, 0]
    if isinstance(size, int) and -size <= places.min() and places.max() < size:
        places = places % size
    elif isinstance(size, int) or (places.min() < 0 <= places.max()):
        return None
    return Known(places) if len(set(places.tolist())) == len(places) else None


def _counted(column: ir.Value, back: int, size: Dim) -> Places | None:
    """Return the places of a value that counts along the axis `back` from the end and repeats along the others."""
    vector = _vector(column, back + 1)
    array = constant_of(vector)
    if vector is None or array is not None:
        return None if array is None else _known(array, 0, size)
    if _counts_all(vector, size):
        return WHOLE
    view = slice_of(vector.producer())
    return _run(view) if view is not None and _counts_all(view.data, size) else None


def _vector(value: ir.Value | None, back: int) -> ir.Value | None:
    """Return the vector that a value repeats along all axes but the one `back` from its end; None for other values."""
    while value is not None:
        dims, maker = graphs.dims_of(value), value.producer()
        if dims is not None and len(dims) == 1:
            return value if back == 1 else None
        inner = None if maker is None or not maker.inputs else maker.inputs[0]
        inside = None if inner is None else graphs.dims_of(inner)
        if dims is None or maker is None or inside is None:
            return None
        moved = _moved(maker, dims, inside, back)
        if moved is None:
            return None
        value, back = inner, moved
    return None


def _moved(made: ir.Node, dims: Sequence[Dim], inside: Sequence[Dim], back: int) -> int | None:
    """Return an axis in front of a node, counted from the end; None where it is no axis there, or repeated."""
    if graphs.is_op(made, "Unsqueeze"):
        added = [axis - len(dims) for axis in changed_axes(made, graphs.integers_of) or ()]
        return None if not added or -back in added else back - sum(axis > -back for axis in added)
    if graphs.is_op(made, "Reshape"):
        others = [dim for at, dim in enumerate(dims) if at != len(dims) - back]
        return 1 if len(inside) == 1 and all(dim == 1 for dim in others) else None
    if graphs.is_op(made, "Expand"):
        return back if len(inside) >= back and inside[-back] == dims[-back] else None
    return None


def _counts_all(value: ir.Value, size: Dim) -> bool:
    """Whether a value is 0, 1, 2, ... over the whole axis."""
    made = value.producer()
    if made is None or not graphs.is_op(made, "Range") or graphs.dims_of(value) != (size,):
        return False
    start, step = (constant_of(made.inputs[at]) for at in (0, 2))
    return start is not None and step is not None and int(start) == 0 and int(step) == 1


def _run(view: Slice) -> Run | None:
    """Return the range that a Slice of a vector keeps, if its end is never before its start; else None."""
    axis_slices = view.axis_slices(symbolic_values_of)
    if not axis_slices:
        return None if axis_slices is None else WHOLE
    (sliced,) = axis_slices
    start, end = sliced.start, sliced.end
    if not isinstance(start, int) or sliced.step != 1 or end is None:
        return None
    if not isinstance(end, int):
        ordered = start >= 0 and never_negative(normal_form(end - start))
        return Run(start, view.ends) if ordered and len(symbolic_values_of(view.ends) or ()) == 1 else None
    if end == END:
        return Run(start, None)
    ordered = start <= end if (start < 0) == (end < 0) else start >= 0
    return Run(start, end) if ordered else None
