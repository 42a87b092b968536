"""Flattens the results of convolutions channels-last where a MatMul follows, and permutes its weights to match.

Before:
    t = Transpose(image [batch, 256, 16, 19], (0, 2, 1, 3));  r = Reshape(t, [0, 16, 4864]);  y = MatMul(r, weights)
After:
    t = Transpose(image, (0, 2, 3, 1));  r = Reshape(t, [0, 16, 4864]);  y = MatMul(r, weights in that order)

ONNX Runtime computes convolutions in a layout of its own. It takes a transpose to channels last for the conversion back
from that layout, and moves all values once; for any other order it moves them twice.

Requires: constant weights; known sizes but for the rows.
Ensures: nothing.
Keeps: images that no convolution made; flattened images that something else reads.
Numerics: order of summation.
Source: a sum of products may be taken in any order.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import perm_of
from compiler.graph.operators.traits import ACTIVATIONS
from compiler.graph.stages import Lowered, Outcome

FRAMES_THEN_CHANNELS, CHANNELS_LAST = (0, 2, 1, 3), (0, 2, 3, 1)
"""Orders of the axes of an image [batch, channels, frames, bins]."""


@dataclasses.dataclass(frozen=True)
class FlattenChannelsLast:
    """Weights in the order in which a convolution hands over its channels."""

    name: ClassVar[str] = "flatten_channels_last"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Flatten images with channels last where a product follows, and permute its weights, in place."""
        model, count = lowered.model, 0
        graphs.infer_shapes(model)
        for node in graphs.nodes_of(model):
            turn = _turn_in_front(node)
            if turn is not None:
                _write(model, node, turn)
                count += 1
        if count:
            graphs.prune(model)
            graphs.infer_shapes(model)
        return Outcome(lowered, count, count)


def _turn_in_front(product: ir.Node) -> ir.Node | None:
    """Return the Transpose of an image whose channels and bins a product sums together; None for other products."""
    weights = graphs.array_of(product.inputs[1]) if graphs.is_op(product, "MatMul") else None
    flat = _alone(product, "Reshape") if weights is not None and weights.ndim == 2 else None
    turn = None if flat is None else _alone(flat, "Transpose")
    if flat is None or turn is None or perm_of(turn, len(FRAMES_THEN_CHANNELS)) != FRAMES_THEN_CHANNELS:
        return None
    before, after = graphs.dims_of(turn.outputs[0]), graphs.dims_of(flat.outputs[0])
    target = graphs.integers_of(flat.inputs[1])
    if before is None or after is None or not target or not all(isinstance(dim, int) for dim in before[2:]):
        return None
    if after != (*before[:2], before[2] * before[3]) or target[2] == 0 or not _is_of_a_convolution(turn.inputs[0]):
        return None
    return turn


def _alone(node: ir.Node, op: str) -> ir.Node | None:
    """Return the producer of a node's first operand, if it is this operator and nothing else reads the operand."""
    value = node.inputs[0]
    maker = None if value is None or graphs.only_reader(value) is not node else value.producer()
    return maker if maker is not None and graphs.is_op(maker, op) else None


def _is_of_a_convolution(value: ir.Value | None) -> bool:
    """Whether an image is the result of a convolution, possibly followed by activations."""
    node = None if value is None else value.producer()
    while node is not None and graphs.is_op(node, *ACTIVATIONS) and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return graphs.is_op(node, "Conv")


def _write(model: ir.Model, product: ir.Node, turn: ir.Node) -> None:
    channels, bins = (graphs.dims_of(turn.outputs[0]) or ())[2:]
    weights, flat = graphs.array_of(product.inputs[1]), product.inputs[0]
    assert weights is not None and flat is not None and isinstance(channels, int) and isinstance(bins, int)
    moved = weights.reshape(channels, bins, -1).swapaxes(0, 1).reshape(weights.shape)
    reshape = flat.producer()
    assert reshape is not None
    insert = graphs.Inserter(model, FlattenChannelsLast.name, before=turn)
    last = insert.op("Transpose", [turn.inputs[0]], {"perm": CHANNELS_LAST}, name=f"{flat.name}_channels_last")
    reshape.replace_input_with(0, last)
    product.replace_input_with(1, insert.constant(np.ascontiguousarray(moved), f"{flat.name}_weights"))
