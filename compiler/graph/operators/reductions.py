"""Decodes a reduction: which axes it reduces and whether it keeps them, in every spelling that ONNX allows.

ReduceMax(x), ReduceMax(x, []), ReduceMax(x, [1, -3, 2]) of three axes:  all of them
ReduceMax<noop_with_empty_axes = 1>(x):                                  none
ArgMax<axis = -1, keepdims = 0>(x):                                      the last one, which goes
"""

import dataclasses

import onnx_ir as ir

from compiler.graph.operators.axes import axis_of, named_axes
from compiler.graph.operators.slices import Reader
from compiler.graph.operators.traits import GLOBAL_POOLS, REDUCTIONS

SEARCHES = frozenset({"ArgMax", "ArgMin"})
"""Reduce the axis along which they search."""


@dataclasses.dataclass(frozen=True)
class Reduction:
    """A reduction, a search or a global pool.

    Attributes:
        rank: how many axes the data have.
        axes: those that are reduced, from the front, in their order; none where the data come out as they are.
        keeps: whether each of them stays as an axis of one entry.
    """

    rank: int
    axes: tuple[int, ...]
    keeps: bool

    @property
    def kept(self) -> dict[int, int]:
        """Return the axes that are not reduced: for each axis of the result, that of the data."""
        kept = [axis for axis in range(self.rank) if axis not in self.axes]
        return {axis if self.keeps else at: axis for at, axis in enumerate(kept)}


def reduction_of(node: ir.Node, read: Reader, rank: int | None = None) -> Reduction | None:
    """Return the view of a reduction; None for other nodes, and where the axes or the rank are unknown.

    Args:
        node: any node.
        read: returns the content of an operand.
        rank: rank of the data; by default from their shape.
    """
    data = node.inputs[0] if node.inputs else None
    rank = len(data.shape) if rank is None and data is not None and data.shape is not None else rank
    if rank is None or node.domain not in ("", "ai.onnx"):
        return None
    stated = node.attributes.get("keepdims")
    keeps = stated is None or bool(stated.as_int())
    if node.op_type in GLOBAL_POOLS:
        return Reduction(rank, tuple(range(2, rank)), True)
    if node.op_type in SEARCHES:
        return Reduction(rank, (axis_of(node, rank),), keeps)
    axes = named_axes(node, read, rank) if node.op_type in REDUCTIONS else None
    if axes == () and not _keeps_all_without_axes(node):
        axes = tuple(range(rank))
    return None if axes is None else Reduction(rank, tuple(sorted(set(axes))), keeps)


def _keeps_all_without_axes(node: ir.Node) -> bool:
    stated = node.attributes.get("noop_with_empty_axes")
    return stated is not None and bool(stated.as_int())
