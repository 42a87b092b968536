"""Replaces a GatherElements on a flattened axis by one on the original axes, where its indices repeat along one.

Before:
    x [2, batch, 8, 23]; flat = Reshape(x, [-1, 23]) [16 * batch, 23]
    places = Add(Unsqueeze(Tile([7, ..., 0], 2 * batch)), [0, ..., 15]) [16 * batch, 16]
    y = GatherElements<axis = 1>(flat, places)
After:
    apart = GatherElements<axis = 3>(x, Expand([[7, ...], ..., [0, ...]], [2, batch, 8, 16]))
    y = Reshape(apart, [-1, 16])

Exact: the same entries in the same order. The places hang on no row then, and each row of x keeps its own axis. Scores
by distance are moved so where an exporter has no strides (Zipformer of icefall).
"""

import math

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of, changed_axes
from compiler.graph.operators.repeats import tile_of
from compiler.rewriting.simplification.constants import constant_of
from compiler.rewriting.simplification.rules import Candidate

COMPUTED = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}


def gathered_apart(candidate: Candidate) -> ir.Value | None:
    """Rewrite a GatherElements of merged axes whose indices repeat over all but the last of them."""
    merged, places = candidate.made(0, "Reshape"), candidate.value(1)
    source = None if merged is None else merged.inputs[0]
    repeated = None if places is None or axis_of(candidate.node, 2) != 1 else _repeated(places)
    if merged is None or source is None or places is None or repeated is None or repeated.ndim != 2:
        return None
    apart, flat, asked = (graphs.dims_of(value) for value in (source, merged.outputs[0], places))
    if apart is None or flat is None or asked is None or len(apart) < 3 or len(flat) != 2:
        return None
    as_many = sympy.expand(math.prod(map(sympy.sympify, apart[:-1])) - asked[0]) == 0
    if not as_many or (apart[-1], apart[-2]) != (flat[1], repeated.shape[0]):
        return None
    insert, width = candidate.insert, repeated.shape[1]
    front = insert.op("Shape", [source], {"end": -1}, name="front", dtype=ir.DataType.INT64, shape=[len(apart) - 1])
    sizes = insert.op("Concat", [front, insert.int64s(width)], {"axis": 0}, name="sizes", dtype=ir.DataType.INT64)
    spread = insert.op("Expand", [insert.constant(repeated, "places"), sizes], name="spread", dtype=places.dtype)
    kind, last = source.dtype, {"axis": len(apart) - 1}
    gathered = insert.op("GatherElements", [source, spread], last, name="apart", dtype=kind)
    return insert.op("Reshape", [gathered, insert.int64s(-1, width)], name="merged", dtype=kind)


def _repeated(value: ir.Value) -> np.ndarray | None:
    """Return the content that a value repeats along its first axis any number of times; None for other values."""
    maker = value.producer()
    if maker is None or maker.inputs[0] is None:
        return None
    tile = tile_of(maker, graphs.integers_of)
    if tile is not None:
        content, along_first = constant_of(tile.data), all(count == 1 for count in tile.repeats[1:])
        return content if content is not None and along_first and content.dtype.kind == "i" else None
    if graphs.is_op(maker, "Unsqueeze"):
        content, axes = _repeated(maker.inputs[0]), changed_axes(maker, graphs.integers_of)
        return None if content is None or axes is None or 0 in axes else np.expand_dims(content, axes)
    if not graphs.is_op(maker, *COMPUTED) or maker.inputs[1] is None:
        return None
    is_second = constant_of(maker.inputs[0]) is not None
    values = tuple(reversed(maker.inputs)) if is_second else tuple(maker.inputs)
    content, other = None if values[0] is None else _repeated(values[0]), constant_of(values[1])
    if content is None or other is None or not _is_within(other, content):
        return None
    result: np.ndarray = COMPUTED[maker.op_type](*((other, content) if is_second else (content, other)))
    return result


def _is_within(other: np.ndarray, content: np.ndarray) -> bool:
    """Whether a constant is the same at every position of the axis that repeats."""
    return other.ndim < content.ndim or (other.ndim == content.ndim and other.shape[0] == 1)


PLACES = {"GatherElements": gathered_apart}
