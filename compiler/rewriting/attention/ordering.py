"""Puts the heads of a value into another order, where they come in: in constants, if nothing mixes heads behind them.

A bias over positions, head by head, then stays what it was to every analysis: arithmetic of positions and constants.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of, changed_axes, perm_of
from compiler.rewriting.attention.attention import ELEMENTWISE


def in_order(
    model: ir.Model, reader: ir.Node, value: ir.Value, axis: int, order: Sequence[int], stamp: str
) -> ir.Value:
    """Return the entries of a value along an axis, in another order.

    Args:
        model: the graph.
        reader: the node in front of which nodes are written.
        value: the value that `reader` reads.
        axis: the heads axis, counted from the front.
        order: the old index of the head at each new index.
        stamp: name of the pass.
    """
    if list(order) == list(range(len(order))):
        return value
    return _Ordering(graphs.Inserter(model, stamp, before=reader, source=graphs.source_of(reader)), order).of(
        value, axis
    )


class _Ordering:
    def __init__(self, insert: graphs.Inserter, order: Sequence[int]) -> None:
        self.insert, self.order = insert, np.array(order, np.int64)

    def of(self, value: ir.Value, axis: int) -> ir.Value:
        array = graphs.array_of(value)
        if array is not None:
            return self.insert.constant(np.take(array, self.order, axis), f"{value.name}_ordered")
        node = value.producer()
        operands = None if node is None else self._operands(node, len(graphs.dims_of(value) or ()), axis)
        if node is None or operands is None:
            index = self.insert.int64s(*self.order.tolist())
            return self.insert.op("Gather", [value, index], {"axis": axis}, name=f"{value.name}_ordered")
        inputs = [
            self.of(each, operands[at]) if at in operands and each is not None else each
            for at, each in enumerate(node.inputs)
        ]
        name = graphs.fresh_name(self.insert.graph, f"{value.name}_ordered")
        output = ir.Value(name=name, shape=value.shape, type=value.type)
        self.insert.place(
            ir.Node(
                node.domain,
                node.op_type,
                inputs,
                list(node.attributes.values()),
                outputs=[output],
                name=f"{name}_node",
                version=node.version,
            )
        )
        return output

    def _operands(self, node: ir.Node, rank: int, axis: int) -> dict[int, int] | None:
        """Return the heads axis of each operand that has one; None where it is not known."""
        first = [graphs.dims_of(each) if each is not None else None for each in node.inputs]
        if node.op_type in ELEMENTWISE and None not in first:
            places = {at: axis - rank + len(dims) for at, dims in enumerate(first) if dims is not None}
            return {
                at: place for at, place in places.items() if place >= 0 and (first[at] or ())[place] == len(self.order)
            }
        if graphs.is_op(node, "Transpose"):
            return {0: perm_of(node, rank)[axis]}
        if graphs.is_op(node, "Unsqueeze"):
            gone = changed_axes(node, graphs.integers_of)
            return None if gone is None or axis in gone else {0: axis - sum(each < axis for each in gone)}
        if graphs.is_op(node, "Gather") and first[0] and first[1] is not None and axis_of(node, len(first[0])) == 0:
            place = axis - len(first[1]) + 1
            return {0: place} if place > 0 else None
        return None
