"""Replaces a Concat of a value and its repeated last entry by a Pad in edge mode.

Concat(x, Expand(x[-1:], [n, 1, 8]))  =  Pad<mode = "edge">(x, [0, 0, 0, n, 0, 0])
"""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.repeats import expand_of, tile_of
from compiler.graph.operators.slices import Number, slice_of
from compiler.graph.sizes.growth import never_negative
from compiler.rewriting.simplification.rules import Candidate, concat, dtype_of, numbers

TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)
"""What ONNX Runtime's Pad takes."""


def joined(candidate: Candidate) -> ir.Value | None:
    """Simplify a Concat of one part, or of a value and its last entry a number of times."""
    fewer = concat(candidate)
    return _with_last_repeated(candidate) if fewer is None else fewer


def _with_last_repeated(candidate: Candidate) -> ir.Value | None:
    value, behind = candidate.value(0), candidate.made(1, "Expand", "Tile")
    dims = None if value is None else graphs.dims_of(value)
    if len(candidate.node.inputs) != 2 or behind is None or dims is None or dtype_of(candidate) not in TYPES:
        return None
    rank, shape = len(dims), graphs.dims_of(behind.outputs[0])
    axis, last = axis_of(candidate.node, rank), behind.inputs[0]
    counts, entry = _times(behind, axis)
    if last is None or counts is None or entry is None or len(graphs.dims_of(last) or ()) != rank or shape is None:
        return None
    count = shape[axis]
    if not (count >= 0 if isinstance(count, int) else count.is_Symbol or never_negative(count)):
        return None
    if not _is_last(candidate, last, value, axis):
        return None
    insert = candidate.insert
    bounds = [insert.int64s(bound) for bound in (entry, entry + 1, 0)]
    number = insert.op("Slice", [counts, *bounds], name="times", dtype=ir.DataType.INT64)
    zeros = [
        insert.int64s(*[0] * (rank + axis)),
        *([insert.int64s(*[0] * (rank - 1 - axis))] if axis + 1 < rank else []),
    ]
    pads = insert.op("Concat", [zeros[0], number, *zeros[1:]], {"axis": 0}, name="pads", dtype=ir.DataType.INT64)
    return insert.op("Pad", [value, pads], {"mode": "edge"}, name="repeated", dtype=dtype_of(candidate))


def _times(behind: ir.Node, axis: int) -> tuple[ir.Value | None, int | None]:
    """Return the operand that says how often an entry comes along an axis, and where in it; None where none does."""
    expand, tile = expand_of(behind, graphs.integers_of), tile_of(behind, graphs.integers_of)
    if expand is not None:
        return expand.target, expand.entry(axis)
    return (None, None) if tile is None else (tile.counts, axis)


def _is_last(candidate: Candidate, entry: ir.Value, value: ir.Value | None, axis: int) -> bool:
    """Whether one value is the last entry of another along an axis."""
    maker, dims = entry.producer(), None if value is None else graphs.dims_of(value)
    if maker is None or dims is None or maker.inputs[0] is not value:
        return False
    size = dims[axis]
    if graphs.is_op(maker, "Gather"):
        picks = numbers(maker.inputs[1], candidate)
        is_along = axis_of(maker, len(dims)) == axis
        return is_along and picks is not None and len(picks) == 1 and picks[0] in (-1, graphs.normal_form(size - 1))
    view = slice_of(maker)
    sliced = None if view is None else view.only_axis_slice(lambda bounds: numbers(bounds, candidate))
    return (
        sliced is not None
        and sliced.axis == axis
        and sliced.step == 1
        and _is_one_before_the_end(sliced.start, sliced.end, size)
    )


def _is_one_before_the_end(start: Number | None, end: Number | None, size: graphs.Dim) -> bool:
    return start in (-1, graphs.normal_form(size - 1)) and end in (graphs.END, size)


BORDERS = {"Concat": joined}
