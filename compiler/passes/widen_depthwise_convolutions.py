"""Rewrites 1-D depthwise convolutions along time as 2-D convolutions over images of height 1.

Before:
    y = Conv(x [batch, 256, 30], weights [256, 1, 15], group 256)
After:
    t = Transpose(x);  image = Transpose(Unsqueeze(t, 1), (0, 3, 1, 2))  # [batch, 256, 1, 30]
    u = Transpose(Conv(image, weights [256, 1, 1, 15], group 256), (0, 2, 3, 1));  y = Transpose(Squeeze(u, 1))

ONNX Runtime computes several channels at once in 2-D convolutions only; in 1-D ones it multiplies matrices of one row.
It takes a transpose right next to such a convolution for its own change of layout; the other two meet the transposes
that the model has around it (`sink_transposes`).

Requires: constant weights.
Ensures: no depthwise convolution has one dimension.
Keeps: convolutions that mix channels, and those that pad by a rule.
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

SWAPPED = (0, 2, 1)
"""The order of axes that swaps channels and time."""


@dataclasses.dataclass(frozen=True)
class WidenDepthwiseConvolutions:
    """Two dimensions for depthwise convolutions."""

    name: ClassVar[str] = "widen_depthwise_convolutions"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite depthwise convolutions over one axis as two-dimensional ones, in place."""
        count = 0
        for node in graphs.nodes_of(lowered.model):
            weights = graphs.array_of(node.inputs[1]) if graphs.is_op(node, "Conv") else None
            if weights is not None and _is_depthwise(node, weights):
                _write(lowered.model, node, weights)
                count += 1
        if count:
            graphs.prune(lowered.model)
            graphs.infer_shapes(lowered.model)
        return Outcome(lowered, count, count)


def _is_depthwise(node: ir.Node, weights: np.ndarray) -> bool:
    view, channels = window_of(node, weights.ndim), int(weights.shape[0])
    if view is None or weights.ndim != 3 or weights.shape[1] != 1 or view.pads is None:
        return False
    return channels > 1 and view.groups == channels


def _write(model: ir.Model, node: ir.Node, weights: np.ndarray) -> None:
    old = node.outputs[0]
    insert = graphs.Inserter(model, WidenDepthwiseConvolutions.name, before=node)
    frames = insert.op("Transpose", [node.inputs[0]], {"perm": SWAPPED}, name=f"{old.name}_in_frames")
    line = insert.op("Unsqueeze", [frames, insert.int64s(1)], name=f"{old.name}_line")
    image = insert.op("Transpose", [line], {"perm": (0, 3, 1, 2)}, name=f"{old.name}_in_channels")
    kernel = insert.constant(weights[:, :, np.newaxis], f"{old.name}_kernel")
    result = insert.op("Conv", [image, kernel, *node.inputs[2:]], _attributes(node), name=f"{old.name}_image")
    result = insert.op("Transpose", [result], {"perm": (0, 2, 3, 1)}, name=f"{old.name}_out_channels")
    result = insert.op("Squeeze", [result, insert.int64s(1)], name=f"{old.name}_out_line")
    result = insert.op("Transpose", [result], {"perm": SWAPPED}, name=f"{old.name}_out_frames", dtype=old.dtype)
    result.shape = old.shape
    graphs.take_over(model, old, result)


def _attributes(node: ir.Node) -> dict[str, int | tuple[int, ...]]:
    """Return the attributes of the same convolution with an axis of size 1 in front."""
    view = window_of(node, 3)
    assert view is not None and view.pads is not None, "a convolution with pads that are stated"
    ((front, behind),) = view.pads
    stated = {"dilations": view.dilations, "kernel_shape": view.kernel, "strides": view.strides}
    return {
        "group": view.groups,
        "pads": (0, front, 0, behind),
        **{name: (1, *(one or 1 for one in ones)) for name, ones in stated.items() if name in node.attributes},
    }
