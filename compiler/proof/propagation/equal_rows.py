"""Finds values whose rows are all equal, because they depend only on constants and on values with equal rows.

A count that begins with 0 is such a content, and so are the positions that are looked up by it: computed once, for one
row, they serve whoever repeats them for all rows by broadcasting.
"""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.proof.propagation.pointwise import pointwise_axes


class EqualRows:
    """The values of a graph that have equal rows.

    Args:
        model: the graph, with symbolic shapes.
        zeros: inputs that hold zeros.
        batch: the axis of rows.

    Attributes:
        axes: the axis of rows of every such value, in graph order.
        contents: of those that are not computed of others, one row: the axis of rows has size 1.
    """

    def __init__(self, model: ir.Model, zeros: Collection[str], batch: str) -> None:
        self.batch = graphs.symbol(batch)
        self.axes: dict[ir.Value, int] = {}
        self.contents: dict[ir.Value, np.ndarray] = {}
        for value in model.graph.inputs:
            if value.name in zeros and value.dtype is not None:
                self._note(value, np.zeros((), value.dtype.numpy()))
        for node in model.graph:
            if graphs.has_body(node):
                continue
            constants = [graphs.array_of(value) for value in node.inputs]
            if graphs.is_op(node, "Expand") and constants[0] is not None:
                self._note(node.outputs[0], constants[0])
            elif graphs.is_op(node, "ConstantOfShape"):
                filled = node.attributes.get("value")
                content = np.zeros((), np.float32) if filled is None else filled.as_tensor().numpy()
                self._note(node.outputs[0], content.reshape(()))
            else:
                self._follow(node, constants)

    def _note(self, value: ir.Value, content: np.ndarray) -> None:
        """Record a value whose rows are all equal, if it holds integers and its other sizes are known.

        Float zeros are left out: they are contexts, which a first call pads with and does not add.
        """
        dims = graphs.dims_of(value)
        row_axis = self._rows_at(value)
        if dims is None or row_axis is None or value.dtype is None or not value.dtype.is_integer():
            return
        sizes = [1 if place == row_axis else dim for place, dim in enumerate(dims)]
        rows = content.ndim - len(dims) + row_axis
        if all(isinstance(size, int) for size in sizes) and (rows < 0 or content.shape[rows] == 1):
            self.axes[value], self.contents[value] = row_axis, np.broadcast_to(content, [int(size) for size in sizes])

    def _rows_at(self, value: ir.Value) -> int | None:
        dims = graphs.dims_of(value) or ()
        places = [place for place, dim in enumerate(dims) if dim == self.batch]
        return places[0] if len(places) == 1 else None

    def _follow(self, node: ir.Node, given: list[np.ndarray | None]) -> None:
        """Record the results of a node that computes row by row from equal rows and constants."""
        read = {number: self.axes[value] for number, value in enumerate(node.inputs) if value in self.axes}
        if not read or any(
            value is not None and number not in read and given[number] is None
            for number, value in enumerate(node.inputs)
        ):
            return
        axes: tuple[int, ...] | None = pointwise_axes(node, read)
        if graphs.is_op(node, "Gather") and list(read) == [1]:  # one entry of a table for every index
            axes = (axis_of(node, given[0].ndim if given[0] is not None else 1) + read[1],)
        for value, axis in zip(node.outputs, axes or (), strict=False):
            if self._rows_at(value) == axis:
                self.axes[value] = axis
