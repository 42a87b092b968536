"""Write depthwise convolutions along time as convolutions over images of one line.

Before:
    y = Conv(x [batch, 256, 30], weights [256, 1, 15], group 256)
After:
    t = Transpose(x);  image = Transpose(Unsqueeze(t, 1), (0, 3, 1, 2))  # [batch, 256, 1, 30]
    u = Transpose(Conv(image, weights [256, 1, 1, 15], group 256), (0, 2, 3, 1));  y = Transpose(Squeeze(u, 1))

ONNX Runtime computes several channels at once in two dimensions alone; in one it multiplies matrices of one line. It
takes a transpose that stands right at such a convolution for its own change of layout; the other two meet what the
model has around it (`sink_transposes`).

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
from compiler.graph.stages import Lowered, Outcome

ONE_BY_ONE = ("dilations", "kernel_shape", "strides")
"""Attributes that say 1 of the new dimension."""

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
    if weights.ndim != 3 or weights.shape[1] != 1 or graphs.attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return False
    channels = int(weights.shape[0])
    return channels > 1 and graphs.int_attribute(node, "group", 1) == channels


def _write(model: ir.Model, node: ir.Node, weights: np.ndarray) -> None:
    old = node.outputs[0]
    insert = graphs.Inserter(model, WidenDepthwiseConvolutions.name, before=node)
    frames = insert.op("Transpose", [node.inputs[0]], {"perm": SWAPPED}, name=f"{old.name}_in_frames")
    line = insert.op("Unsqueeze", [frames, insert.int64s(1)], name=f"{old.name}_line")
    image = insert.op("Transpose", [line], {"perm": (0, 3, 1, 2)}, name=f"{old.name}_in_channels")
    kernel = insert.constant(weights[:, :, np.newaxis], f"{old.name}_kernel")
    found = insert.op("Conv", [image, kernel, *node.inputs[2:]], _attributes(node), name=f"{old.name}_image")
    found = insert.op("Transpose", [found], {"perm": (0, 2, 3, 1)}, name=f"{old.name}_out_channels")
    found = insert.op("Squeeze", [found, insert.int64s(1)], name=f"{old.name}_out_line")
    found = insert.op("Transpose", [found], {"perm": SWAPPED}, name=f"{old.name}_out_frames", dtype=old.dtype)
    found.shape = old.shape
    graphs.take_over(model, old, found)


def _attributes(node: ir.Node) -> dict[str, int | tuple[int, ...]]:
    """Return the attributes of the same convolution with an axis of size 1 in front."""
    pads = graphs.ints_attribute(node, "pads") or (0, 0)
    stated = [name for name in ONE_BY_ONE if name in node.attributes]
    return {
        "group": graphs.int_attribute(node, "group", 1),
        "pads": (0, pads[0], 0, pads[1]),
        **{name: (1, *graphs.ints_attribute(node, name)) for name in stated},
    }
