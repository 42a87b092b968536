"""Rewrites convolutions with kernel size 1 as MatMuls over channels.

Before:
    y = Conv(x [batch, 256, 16], weights [512, 256, 1], bias)
After:
    t = Transpose(x);  m = MatMul(t [batch, 16, 256], weights [256, 512]);  y = Transpose(Add(m, bias))

A convolution multiplies row by row of the batch, with as few columns as there are frames; a product takes the frames of
all rows at once. Of the two transposes most models have one already: `sink_transposes` lets them meet.

Requires: constant weights.
Ensures: no convolution with a kernel of one place, one group, and neither strides nor padding.
Keeps: every other convolution.
Numerics: order of summation.
Source: the definition of Conv, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.windows import window_of
from compiler.graph.stages import Lowered, Outcome


@dataclasses.dataclass(frozen=True)
class LowerPointwiseConvolutions:
    """Products in place of convolutions that look at one place."""

    name: ClassVar[str] = "lower_pointwise_convolutions"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite convolutions with kernels of size 1 as products, in place."""
        graphs.infer_shapes(lowered.model)
        count = 0
        for node in graphs.nodes_of(lowered.model):
            weights = _weights(node)
            if weights is not None:
                _write(lowered.model, node, weights)
                count += 1
        if count:
            graphs.prune(lowered.model)
            graphs.infer_shapes(lowered.model)
        return Outcome(lowered, count, count)


def _weights(node: ir.Node) -> np.ndarray | None:
    """Return the matrix [inputs, outputs] of a convolution with a kernel of size 1; None for other nodes."""
    weights = graphs.array_of(node.inputs[1]) if graphs.is_op(node, "Conv") else None
    view = None if weights is None else window_of(node, weights.ndim)
    if view is None or weights is None or not view.is_pointwise or view.groups != 1:
        return None
    return np.ascontiguousarray(weights.reshape(weights.shape[:2]).T)


def _write(model: ir.Model, node: ir.Node, weights: np.ndarray) -> None:
    old, data = node.outputs[0], node.inputs[0]
    rank = len(graphs.array_of(node.inputs[1]).shape)  # type: ignore[union-attr]
    insert = graphs.Inserter(model, LowerPointwiseConvolutions.name, before=node)
    channels_last = (0, *range(2, rank), 1)
    transposed = insert.op("Transpose", [data], {"perm": channels_last}, name=f"{old.name}_channels_last")
    product = insert.op(
        "MatMul", [transposed, insert.constant(weights, f"{old.name}_matrix")], name=f"{old.name}_product"
    )
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        product = insert.op("Add", [product, node.inputs[2]], name=f"{old.name}_biased")
    channels_first = (0, rank - 1, *range(1, rank - 1))
    back = insert.op(
        "Transpose", [product], {"perm": channels_first}, name=f"{old.name}_channels_first", dtype=old.dtype
    )
    back.shape = old.shape
    graphs.take_over(model, old, back)
