"""Simplifies integer sums: `offset + 4 - (offset - cached)` becomes `cached + 4`.

Sums are taken apart through additions and subtractions of single numbers, and through what only gives a number another
shape or another type of whole numbers.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping

import onnx_ir as ir

from compiler.graph.model import Dim, dims_of, integers_of, is_op
from compiler.graph.operators.traits import VIEWS

WHOLE = (ir.DataType.INT32, ir.DataType.INT64)
"""Types in which numbers of entries and positions do not wrap round."""


@dataclasses.dataclass(frozen=True)
class Sum:
    """A whole number.

    Attributes:
        terms: how often each value is in it; none is there 0 times.
        constant: the added constant.
    """

    terms: Mapping[ir.Value, int]
    constant: int

    def minus(self, other: "Sum") -> "Sum":
        """Return the difference of two sums."""
        return _added(self, other, -1)


Dims = Callable[[ir.Value], tuple[Dim, ...] | None]


def sum_of(value: ir.Value, dims: Dims = dims_of) -> Sum:
    """Return a single integer as a sum of terms that are no sums; an integer that is no sum is its only term.

    Args:
        value: a value of one entry.
        dims: the shape of a value; that of the graph, unless the graph is being changed.
    """
    known = integers_of(value)
    if known is not None and len(known) == 1 and isinstance(known[0], int):
        return Sum({}, known[0])
    node = value.producer()
    if node is None or value.dtype not in WHOLE:
        return Sum({value: 1}, 0)
    first = node.inputs[0] if node.inputs else None
    moved = is_op(node, *VIEWS, "Cast", "CastLike") or (is_op(node, "Gather") and _is_single(first, dims))
    if first is not None and moved:
        return sum_of(first, dims) if first.dtype in WHOLE else Sum({value: 1}, 0)
    if is_op(node, "Add", "Sub") and all(_is_single(operand, dims) for operand in node.inputs):
        left, right = (sum_of(operand, dims) for operand in node.inputs if operand is not None)
        return _added(left, right, 1 if node.op_type == "Add" else -1)
    return Sum({value: 1}, 0)


def _is_single(value: ir.Value | None, dims: Dims) -> bool:
    found = None if value is None else dims(value)
    return found is not None and all(dim == 1 for dim in found)


def _added(left: Sum, right: Sum, times: int) -> Sum:
    terms = collections.Counter(dict(left.terms))
    for value, count in right.terms.items():
        terms[value] += times * count
    return Sum({value: count for value, count in terms.items() if count}, left.constant + times * right.constant)
