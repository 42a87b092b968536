"""Decodes a Split: into which pieces it splits which axis, in every spelling that ONNX allows.

Split(x, [2, 1]), Split<split = [2, 1]>(x), Split<axis = -1>(x, [2, 1]):  sizes (2, 1)
Split<num_outputs = 2>(x), Split(x) with two results:                     two equal parts, the last one may be smaller
"""

import dataclasses
import itertools

import onnx_ir as ir

from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.slices import Number, Reader


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """ai.onnx Split 2, 11, 13 and 18.

    Attributes:
        data: the value that is split.
        axis: counted from the front.
        count: how many pieces there are.
        sizes: of every piece along the axis, None for one that is unknown; None for equal parts.
    """

    data: ir.Value
    axis: int
    count: int
    sizes: tuple[Number | None, ...] | None

    def bounds(self, size: int) -> list[tuple[int, int]] | None:
        """Return the first entry of every piece and the one after its last; None where sizes depend on lengths.

        Args:
            size: of the axis, of which equal parts are parts.
        """
        part = -(-size // self.count)
        equal = [max(0, min(part, size - part * piece)) for piece in range(self.count)]
        sizes = [number for number in (equal if self.sizes is None else self.sizes) if isinstance(number, int)]
        return list(itertools.pairwise(itertools.accumulate(sizes, initial=0))) if len(sizes) == self.count else None


def split_of(node: ir.Node | None, read: Reader, rank: int | None = None) -> Split | None:
    """Return the view of a Split; None for other nodes, and where the rank is unknown.

    Args:
        node: any node.
        read: returns the content of an operand.
        rank: rank of the data; by default from their shape.
    """
    if node is None or node.op_type != "Split" or node.domain not in ("", "ai.onnx") or not node.inputs:
        return None
    data, operand = (*node.inputs, None)[:2]
    rank = len(data.shape) if rank is None and data is not None and data.shape is not None else rank
    if data is None or rank is None:
        return None
    count, stated, sizes = len(node.outputs), node.attributes.get("split"), None
    if operand is not None:
        sizes = tuple(read(operand) or [None] * count)
    elif stated is not None:
        sizes = tuple(stated.as_ints())
    return Split(data, axis_of(node, rank), count, sizes)
