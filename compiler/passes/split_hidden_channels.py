"""Computes the wide layer between two MatMuls in blocks of channels, so that it fits the processor's cache.

Before:
    h = MatMul(x [rows, 256], a [256, 2048]) + c;  y = MatMul(h * Sigmoid(h), b [2048, 256]) + d
After, for each of four blocks of 512 channels:
    h = MatMul(x, a[:, block]) + c[block];  y = Gemm(h * Sigmoid(h), b[block], y of the block before, or d)

For example, 16 streams of 16 frames are 256 rows, whose 2 MB of hidden values leave a second-level cache three times.

Requires: two axes (`merge_rows`); constant weights.
Ensures: no product reads more than BLOCK hidden channels, where they can be divided.
Keeps: hidden values that something else reads, or that are made by anything but products and entry by entry.
Numerics: order of summation.
Source: the product of two matrices is the sum of those of their blocks.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.traits import ENTRYWISE
from compiler.graph.stages import Array, Lowered, Outcome

BLOCK = 512
"""Hidden channels that are computed together; measured with 256 rows, where 256 channels are slower again."""

ENTRY_BY_ENTRY = ENTRYWISE - {"CastLike", "Clip"}


@dataclasses.dataclass(frozen=True)
class SplitHiddenChannels:
    """Blocks of hidden channels, one after the other."""

    name: ClassVar[str] = "split_hidden_channels"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Split wide hidden layers into blocks of channels, in place."""
        model, count = lowered.model, 0
        graphs.infer_shapes(model)
        for node in graphs.nodes_of(model):
            layer = _Layer.behind(node)
            if layer is not None and layer.channels > BLOCK and layer.channels % BLOCK == 0:
                layer.write(model)
                count += 1
        if count:
            graphs.prune(model)
            graphs.infer_shapes(model)
        return Outcome(lowered, count, count)


class _Layer:
    """A wide layer.

    Attributes:
        product: reads it.
        channels: of it.
        nodes: make it, in the order in which they run: products with constant matrices, and entry by entry behind them.
    """

    def __init__(self, product: ir.Node, channels: int) -> None:
        self.product, self.channels = product, channels
        self.nodes: dict[ir.Node, None] = {}

    @classmethod
    def behind(cls, product: ir.Node) -> "_Layer | None":
        """Return the elementwise hidden layer that a product reads, if nothing else reads it; None for others."""
        weights, wide = _matrix(product), product.inputs[0] if product.inputs else None
        if weights is None or wide is None:
            return None
        layer = cls(product, weights.shape[0])
        return layer if layer._follow(wide) and layer._is_closed() else None

    def _follow(self, value: ir.Value) -> bool:
        node = value.producer()
        if node is None or value.is_graph_output() or len(node.outputs) != 1:
            return False
        if node in self.nodes:
            return True
        dims = graphs.dims_of(value)
        if dims is None or len(dims) != 2 or dims[1] != self.channels:
            return False
        entrywise = graphs.is_op(node, *ENTRY_BY_ENTRY)
        if _matrix(node) is None and not (entrywise and all(self._is_read(operand) for operand in node.inputs)):
            return False
        self.nodes[node] = None
        return True

    def _is_read(self, value: ir.Value | None) -> bool:
        """Whether a value is a constant that can be sliced by channel, or a part of the layer."""
        array = graphs.array_of(value)
        if array is not None:
            return (
                array.ndim < 3 and array.size in (1, self.channels) and array.shape[-1:] in ((), (1,), (self.channels,))
            )
        return value is not None and self._follow(value)

    def _is_closed(self) -> bool:
        inside = {*self.nodes, self.product}
        return all(reader in inside for node in self.nodes for reader in graphs.consumers_of(node.outputs[0]))

    def write(self, model: ir.Model) -> None:
        """Write the layer block by block; a bias behind the product is added to the first block."""
        old, weights = self.product.outputs[0], _matrix(self.product)
        assert weights is not None
        behind = graphs.bias_behind(self.product)
        last, bias = (self.product, None) if behind is None else (behind[0], behind[0].inputs[behind[1]])
        insert = graphs.Inserter(model, SplitHiddenChannels.name, before=last)
        total = bias
        for start in range(0, self.channels, BLOCK):
            place = slice(start, start + BLOCK)
            wide = self._channel_range(insert, place)
            matrix = insert.constant(np.ascontiguousarray(weights[place]), f"{old.name}_block")
            operands = [wide, matrix] if total is None else [wide, matrix, total]
            total = insert.op("Gemm", operands, name=f"{old.name}_sum", dtype=old.dtype)
        assert total is not None
        total.shape = last.outputs[0].shape
        graphs.take_over(model, last.outputs[0], total)

    def _channel_range(self, insert: graphs.Inserter, place: slice) -> ir.Value:
        """Return the layer's result for a range of channels."""
        copies: dict[ir.Value, ir.Value] = {}
        for node in self.nodes:
            operands = [
                None if value is None else self._operand(insert, node, value, place, copies) for value in node.inputs
            ]
            old = node.outputs[0]
            new = ir.Value(name=graphs.fresh_name(insert.graph, f"{old.name}_part"), type=old.type)
            attributes = list(node.attributes.values())
            insert.place(ir.Node("", node.op_type, operands, attributes, outputs=[new], name=f"{new.name}_node"))
            copies[old] = new
        return copies[next(reversed(copies))]

    def _operand(
        self, insert: graphs.Inserter, node: ir.Node, value: ir.Value, place: slice, made: Mapping[ir.Value, ir.Value]
    ) -> ir.Value:
        array = graphs.array_of(value)
        is_data = _matrix(node) is not None and value is node.inputs[0]
        if array is None or is_data or array.shape[-1:] != (self.channels,):
            return made.get(value, value)
        part: Array = np.ascontiguousarray(array[..., place])
        return insert.constant(part, f"{node.outputs[0].name}_part")


def _matrix(node: ir.Node) -> Array | None:
    """Return the constant matrix that a node multiplies a value of two axes by; None for other nodes."""
    if not graphs.is_op(node, "MatMul") or node.inputs[0] is None or len(graphs.dims_of(node.inputs[0]) or ()) != 2:
        return None
    array = graphs.array_of(node.inputs[1])
    return array if array is not None and array.ndim == 2 and np.issubdtype(array.dtype, np.floating) else None
