"""Rewrites quantised convolutions with kernel size 1 as quantised MatMuls.

Before:
    y = Conv(DQ(Q(x)), DQ(codes [512, 256, 1], scales of axis 0), bias)
After:
    t = Transpose(x);  m = MatMul(DQ(Q(t)), DQ(codes [256, 512], scales of axis 1));  y = Transpose(Add(m, bias))

A device that multiplies integers in products and not in convolutions computes such a one in floating point: it rounds,
and saves nothing.

Requires: constant codes of weights, with a scale per output or one; data of one scale.
Ensures: no quantised convolution with a kernel of one place, one group, and neither strides nor padding.
Keeps: every other convolution, those that are not quantised among them.
Numerics: order of summation; codes and grids stay.
Source: the definition of Conv, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.windows import window_of
from compiler.graph.stages import Lowered, Outcome


@dataclasses.dataclass(frozen=True)
class LowerQuantizedConvolutions:
    """Products of codes in place of convolutions that look at one place."""

    name: ClassVar[str] = "lower_quantized_convolutions"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite quantized convolutions with kernels of size 1 as quantized products, in place."""
        graphs.infer_shapes(lowered.model)
        found = [each for each in map(_quantized, graphs.nodes_of(lowered.model)) if each is not None]
        for each in found:
            _write(lowered.model, each)
        if found:
            graphs.prune(lowered.model)
            graphs.infer_shapes(lowered.model)
        return Outcome(lowered, len(found), len(found))


@dataclasses.dataclass(frozen=True)
class _Quantized:
    """A convolution over one place, with the nodes that quantise and dequantise its inputs."""

    node: ir.Node
    rounds: ir.Node
    data: ir.Node
    weights: ir.Node
    rank: int


def _quantized(node: ir.Node) -> _Quantized | None:
    if not graphs.is_op(node, "Conv") or len(node.inputs) < 2:
        return None
    data, weights = (None if value is None else value.producer() for value in node.inputs[:2])
    if data is None or weights is None or not all(graphs.is_op(maker, "DequantizeLinear") for maker in (data, weights)):
        return None
    rounds = None if data.inputs[0] is None else data.inputs[0].producer()
    codes, scale = graphs.array_of(weights.inputs[0]), graphs.array_of(data.inputs[1])
    if (
        rounds is None
        or not graphs.is_op(rounds, "QuantizeLinear")
        or codes is None
        or scale is None
        or scale.size != 1
    ):
        return None
    view = window_of(node, codes.ndim)
    if view is None or not view.is_pointwise or view.groups != 1 or axis_of(weights, codes.ndim):
        return None
    return _Quantized(node, rounds, data, weights, codes.ndim)


def _write(model: ir.Model, found: _Quantized) -> None:
    node, rank, old = found.node, found.rank, found.node.outputs[0]
    insert = graphs.Inserter(model, LowerQuantizedConvolutions.name, before=node)
    name, read, kind = str(old.name), found.rounds.inputs[0], ir.DataType.INT8
    transposed = insert.op("Transpose", [read], {"perm": (0, *range(2, rank), 1)}, name=f"{name}_channels_last")
    codes = insert.op("QuantizeLinear", [transposed, *found.rounds.inputs[1:]], name=f"{name}_codes", dtype=kind)
    data = insert.op("DequantizeLinear", [codes, *found.data.inputs[1:]], name=f"{name}_data", dtype=old.dtype)
    array = graphs.array_of(found.weights.inputs[0])
    assert array is not None
    matrix = insert.constant(np.ascontiguousarray(array.reshape(array.shape[:2]).T), f"{name}_matrix")
    weights = insert.op(
        "DequantizeLinear", [matrix, *found.weights.inputs[1:]], {"axis": 1}, name=f"{name}_weights", dtype=old.dtype
    )
    product = insert.op("MatMul", [data, weights], name=f"{name}_product", dtype=old.dtype)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        product = insert.op("Add", [product, node.inputs[2]], name=f"{name}_biased", dtype=old.dtype)
    back = insert.op(
        "Transpose", [product], {"perm": (0, rank - 1, *range(1, rank - 1))}, name=f"{name}_first", dtype=old.dtype
    )
    back.shape = old.shape
    graphs.take_over(model, old, back)
