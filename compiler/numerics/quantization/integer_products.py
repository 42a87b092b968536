"""Finds MatMuls of two dequantised values, and decides whether ONNX Runtime's integer kernels support them.

    MatMul(DequantizeLinear(a), DequantizeLinear(b)) + bias  =  MatMulIntegerToFloat(a, b, scales, zero points, bias)

Source: kernels of ONNX Runtime 1.31 and their times. Only unsigned data times signed codes reaches the instructions
that multiply four bytes at once: signed times signed falls to plain loops, fifty times slower, and unsigned times
unsigned takes three times as long. No kernel reports that.
"""

import dataclasses

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.runners.coded_states import CODE_TYPES
from compiler.graph.stages import Array

SLOW = {
    (ir.DataType.INT8, ir.DataType.INT8): "signed times signed codes fall to plain loops",
    (ir.DataType.UINT8, ir.DataType.UINT8): "unsigned times unsigned codes take three times as long",
    (ir.DataType.INT8, ir.DataType.UINT8): "signed times unsigned codes have no kernel",
}
"""Why a pair of types stays as it is."""


@dataclasses.dataclass(frozen=True)
class Factor:
    """The result of a DequantizeLinear with constant parameters.

    Attributes:
        node: it.
        codes: the codes that it reads.
        scales: float32, one or one per entry of `axis`.
        zeros: in the type of the codes, shaped like the scales.
        axis: along which they lie, counted from the front; of one scale, any.
    """

    node: ir.Node
    codes: ir.Value
    scales: Array
    zeros: Array
    axis: int

    @property
    def rank(self) -> int:
        """Return the rank of the codes."""
        return len(self.codes.shape or ())

    @property
    def is_constant(self) -> bool:
        """Whether the codes are constant."""
        return graphs.array_of(self.codes) is not None

    @property
    def numbers(self) -> Array:
        """Return the numbers, float32, that constant codes stand for."""
        codes = graphs.array_of(self.codes)
        assert codes is not None
        along = [-1 if at == self.axis else 1 for at in range(codes.ndim)] if self.scales.ndim else []
        zeros, scales = self.zeros.astype(np.int32).reshape(along), self.scales.reshape(along)
        found: Array = (codes.astype(np.int32) - zeros).astype(np.float32) * scales
        return found


@dataclasses.dataclass(frozen=True)
class IntegerProduct:
    """A product of two dequantised values, and the value added to it.

    Attributes:
        node: MatMul.
        first: its data.
        second: the other factor: weights, or data as well.
        bias: float32 [columns], or None.
        result: the value that the rest of the graph reads.
    """

    node: ir.Node
    first: Factor
    second: Factor
    bias: Array | None
    result: ir.Value

    @property
    def hindrance(self) -> str | None:
        """Return why no integer kernel computes the product; None where one does."""
        kinds = (self.first.codes.dtype, self.second.codes.dtype)
        if kinds in SLOW:
            return SLOW[kinds]
        if self.first.scales.ndim:
            return "its data have a scale per entry of an axis"
        if self.second.scales.ndim and (self.second.rank != 2 or self.second.axis != 1):
            return "its second operand has scales that are not those of its columns"
        return None


def products_of(model: ir.Model) -> list[IntegerProduct]:
    """Return all products of two dequantized values, in graph order, except in subgraphs."""
    return [found for node in model.graph if (found := _product(node)) is not None]


def _product(node: ir.Node) -> IntegerProduct | None:
    if not graphs.is_op(node, "MatMul"):
        return None
    first, second = map(factor_of, node.inputs[:2])
    if first is None or second is None or min(first.rank, second.rank) < 2:
        return None
    result = node.outputs[0]
    width = (graphs.dims_of(second.codes) or (0,))[-1]
    adding = graphs.only_reader(result)
    bias = None if adding is None or not isinstance(width, int) else _bias(adding, result, width)
    return IntegerProduct(node, first, second, bias, adding.outputs[0] if adding and bias is not None else result)


def factor_of(value: ir.Value | None) -> Factor | None:
    """Return the parts of a dequantized value of 8 bits; None for others, or with computed parameters."""
    node = None if value is None else value.producer()
    if node is None or not graphs.is_op(node, "DequantizeLinear") or node.inputs[0] is None:
        return None
    codes, scales = node.inputs[0], graphs.array_of(node.inputs[1])
    if codes.dtype not in CODE_TYPES or codes.shape is None or scales is None or scales.dtype != np.float32:
        return None
    point = node.inputs[2] if len(node.inputs) > 2 else None
    zeros = np.zeros(scales.shape, codes.dtype.numpy()) if point is None else graphs.array_of(point)
    if zeros is None or scales.ndim > 1:
        return None
    if scales.size == 1:
        return Factor(node, codes, scales.reshape(()), zeros.reshape(()), 0)
    return Factor(node, codes, scales, zeros, axis_of(node, len(codes.shape)))


def _bias(node: ir.Node, product: ir.Value, width: int) -> Array | None:
    """Return the bias added to every row of a product, [width]; None where the node is no such addition."""
    if not graphs.is_op(node, "Add"):
        return None
    others = [graphs.array_of(value) for value in node.inputs if value is not product]
    rank = len(product.shape or ())
    if len(others) != 1 or others[0] is None or others[0].dtype != np.float32 or others[0].ndim > rank:
        return None
    lies_along_columns = others[0].shape[-1:] == (width,) and others[0].size == width
    return others[0].reshape(-1) if lies_along_columns else None
