"""Permutes the heads of a value: in the constants that it is computed from where possible, otherwise with a Gather.

A bias over positions, head by head, then stays what it was to every analysis: arithmetic of positions and constants.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, axis_map_of
from compiler.rewriting.attention.attention import ELEMENTWISE

FOLLOWED = ELEMENTWISE | {"Gather", "Transpose", "Unsqueeze"}
"""A list of its own: operators through which the order of heads is looked for in what they are computed of."""


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
        operands = None if node is None else self._operands(node, axis)
        if node is None or operands is None:
            index = self.insert.int64s(*self.order.tolist())
            return self.insert.op("Gather", [value, index], {"axis": axis}, name=f"{value.name}_ordered")
        inputs = [
            self.of(operand, operands[number]) if number in operands and operand is not None else operand
            for number, operand in enumerate(node.inputs)
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

    def _operands(self, node: ir.Node, axis: int) -> dict[int, int] | None:
        """Return the heads axis of each operand that has one; None where entries move otherwise, or heads mix."""
        if node.op_type not in FOLLOWED or node.domain not in ("", "ai.onnx"):
            return None
        try:
            return axis_map_of(node).sources(axis) or None
        except NotMapped:
            return None
