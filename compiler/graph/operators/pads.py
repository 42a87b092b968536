"""Decodes a Pad: which entries it adds to which axes, in every spelling that ONNX allows.

Pad(x, [0, 1, 0, 2]), Pad(x, [1, 2], "", [1]), Pad(x, [1, 2], "", [-1]) of two axes:  {1: (1, 2)} among the axes
"""

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from compiler.graph.operators.axes import named_axes
from compiler.graph.operators.slices import Number, Reader


@dataclasses.dataclass(frozen=True, eq=False)
class Pad:
    """ai.onnx Pad since operator set 11.

    Attributes:
        data: the padded value.
        value: the number that is added, of one element; None for 0.
        mode: "constant", or which entries are added instead: "edge", "reflect" or "wrap".
        added: by axis from the front how many entries are added in front and behind; below 0 as many are cut off.
            Axes that are not there stay.
    """

    data: ir.Value
    value: ir.Value | None
    mode: str
    added: Mapping[int, tuple[Number, Number]]

    @property
    def numbers(self) -> Mapping[int, tuple[int, int]] | None:
        """Return the added entries where all are fixed; None where one depends on lengths."""
        pairs = {axis: (a, b) for axis, (a, b) in self.added.items() if isinstance(a, int) and isinstance(b, int)}
        return pairs if len(pairs) == len(self.added) else None


def pad_of(node: ir.Node | None, read: Reader, rank: int | None = None) -> Pad | None:
    """Return the view of a Pad; None for other nodes, and where axes, amounts or the rank are unknown.

    Args:
        node: any node.
        read: returns the content of an operand.
        rank: rank of the data; by default from their shape.
    """
    if node is None or node.op_type != "Pad" or node.domain not in ("", "ai.onnx") or len(node.inputs) < 2:
        return None
    data, amounts, value, axes_operand = (*node.inputs, None, None)[:4]
    rank = len(data.shape) if rank is None and data is not None and data.shape is not None else rank
    if data is None or amounts is None or rank is None:
        return None
    axes = tuple(range(rank)) if axes_operand is None else named_axes(node, read, rank)
    known = [number for number in read(amounts) or () if number is not None]
    if axes is None or len(known) != 2 * len(axes):
        return None
    mode = node.attributes.get("mode")
    added = dict(zip(axes, zip(known[: len(axes)], known[len(axes) :], strict=True), strict=True))
    return Pad(data, value, "constant" if mode is None else mode.as_string(), added)
