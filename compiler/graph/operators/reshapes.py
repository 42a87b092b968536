"""Decodes a Reshape: which sizes it asks for, in every spelling that ONNX allows.

Reshape(x, [0, -1]), Reshape<allowzero = 0>(x, [0, -1]) of 2 * 3 * 4:  the first size is copied, one is left over
Reshape<allowzero = 1>(x, [0, 4]):                                     no entries
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import onnx_ir as ir

from compiler.graph.operators.slices import Number, Reader

Size = TypeVar("Size")

LEFT_OVER = -1
"""Stands for the size of which entries are left over by the others."""


@dataclasses.dataclass(frozen=True)
class Target:
    """The requested shape of a Reshape.

    Attributes:
        sizes: as many as the result has axes; LEFT_OVER for one of them at most, None for one that is not known.
        copies: whether a size of 0 stands for that of the data in its place; else the axis has no entries.
    """

    sizes: tuple[Number | None, ...]
    copies: bool

    def copied(self, axis: int) -> bool:
        """Whether the size of an axis is copied from the data's axis of that index."""
        return self.copies and self.sizes[axis] == 0

    def of(self, sizes: Sequence[Size]) -> tuple[Size | Number | None, ...]:
        """Return the target sizes for data of these sizes, with LEFT_OVER; copies of missing axes stay as they are."""
        return tuple(
            sizes[axis] if self.copied(axis) and axis < len(sizes) else asked for axis, asked in enumerate(self.sizes)
        )


def copies_zeros(node: ir.Node) -> bool:
    """Whether a target size of 0 in a Reshape copies the data's size."""
    stated = node.attributes.get("allowzero")
    return stated is None or not stated.as_int()


def target_of(node: ir.Node | None, read: Reader) -> Target | None:
    """Return the view of a Reshape; None for other nodes, and where its sizes are unknown.

    Args:
        node: any node.
        read: returns the content of an operand.
    """
    if node is None or node.op_type != "Reshape" or node.domain not in ("", "ai.onnx") or len(node.inputs) < 2:
        return None
    sizes = None if node.inputs[1] is None else read(node.inputs[1])
    return None if sizes is None else Target(tuple(sizes), copies_zeros(node))
