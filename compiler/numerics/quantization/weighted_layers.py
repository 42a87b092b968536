"""Finds layers that can be computed on integers: MatMuls and convolutions of data with constant weights."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from compiler.calib.grid import Array
from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.operators.traits import PRODUCTS, REARRANGING
from compiler.graph.stages import Refusal

PINS = ("front", "depthwise", "output")
"""Kinds of layers that stay in float unless a recipe says otherwise: convolutions that nothing precedes but their like,
depthwise convolutions, and the last product before a data output."""


@dataclasses.dataclass(frozen=True)
class WeightedLayer:
    """One product or convolution with constant weights, its bias and, behind a convolution, its Relu.

    Attributes:
        node: MatMul or Conv.
        weights: float32; [in, out] of a product, [out, in / groups, ...] of a convolution.
        groups: of a convolution.
        bias: float32 [out], or None.
        parts: nodes that a quantised form replaces, the last of which gives the result.
    """

    node: ir.Node
    weights: Array
    groups: int
    bias: Array | None
    parts: tuple[ir.Node, ...]

    @property
    def name(self) -> str:
        """Return the node's name."""
        return str(self.node.name)

    @property
    def is_convolution(self) -> bool:
        """Whether the layer is a convolution."""
        return bool(self.node.op_type == "Conv")

    @property
    def data(self) -> ir.Value:
        """Return the operand that is not constant."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    @property
    def result(self) -> ir.Value:
        """Return the layer's result, after bias and activation."""
        return self.parts[-1].outputs[0]

    @property
    def weight_axis(self) -> int:
        """Return the axis of the output channels in the weights."""
        return 0 if self.is_convolution else 1

    @property
    def channel_axis(self) -> int:
        """Return the axis of the channels in the data."""
        return 1 if self.is_convolution else -1

    @property
    def matrix(self) -> Array:
        """Return the factors of each input channel, [in, ...]; for a depthwise convolution the root sum of squares."""
        if not self.is_convolution:
            return self.weights
        if self.groups == 1:
            return np.moveaxis(self.weights, 1, 0).reshape(self.weights.shape[1], -1)
        return np.diag(np.sqrt(np.square(self.weights).reshape(self.groups, -1).sum(axis=1)))

    def mean_output(self, weights: Array, means: Array) -> Array:
        """Return the mean of each output channel without bias, given those of the inputs; exact without padding."""
        if not self.is_convolution:
            return means @ weights
        taps = weights.reshape(*weights.shape[:2], -1).sum(axis=2)
        of_group = means.reshape(self.groups, -1)
        rows = taps.reshape(self.groups, -1, taps.shape[1])
        found: Array = np.einsum("goi,gi->go", rows, of_group).reshape(-1)
        return found


def find_layers(model: ir.Model) -> list[WeightedLayer]:
    """Return all layers in graph order, except in subgraphs."""
    return [layer for node in model.graph for layer in _layer(node)]


def _layer(node: ir.Node) -> Iterator[WeightedLayer]:
    if not graphs.is_op(node, "MatMul", "Conv") or len(node.inputs) < 2:
        return
    weights = graphs.array_of(node.inputs[1])
    data = node.inputs[0]
    if weights is None or weights.dtype != np.float32 or data is None or graphs.array_of(data) is not None:
        return
    if node.op_type == "Conv":
        groups = node.attributes.get_int("group", 1)
        bias = graphs.array_of(node.inputs[2]) if len(node.inputs) > 2 else None
        if len(node.inputs) > 2 and node.inputs[2] is not None and bias is None:
            return
        if groups not in (1, weights.shape[0]) or (groups > 1 and weights.shape[1] != 1):
            return
        follower = graphs.only_reader(node.outputs[0])
        parts = (node, follower) if follower is not None and graphs.is_op(follower, "Relu") else (node,)
        yield WeightedLayer(node, weights, groups, bias, parts)
    elif weights.ndim == 2 and data.shape is not None and len(data.shape) > 2:
        behind = graphs.bias_behind(node)
        array = None if behind is None else graphs.array_of(behind[0].inputs[behind[1]])
        bias = None if array is None else np.asarray(array.reshape(-1), np.float32)
        yield WeightedLayer(node, weights, 1, bias, (node,) if behind is None else (node, behind[0]))


def left_out(model: ir.Model) -> list[Refusal]:
    """Return refusals of operators with constant float weights that have no integer form here."""
    found = {layer.node for layer in find_layers(model)}
    return [
        Refusal(f"{node.op_type} {node.name} has no integer form: {_reason(node)}", Location(node=str(node.name)))
        for node in model.graph
        if node not in found
        and graphs.is_op(node, *PRODUCTS)
        and any(
            (array := graphs.array_of(value)) is not None and array.dtype == np.float32 for value in node.inputs[1:2]
        )
    ]


def _reason(node: ir.Node) -> str:
    if node.op_type == "MatMul":
        return "its data are of rank 2, or its weights of another"
    return "its groups are neither one nor one channel each" if node.op_type == "Conv" else "write it as MatMul"


def root_of(value: ir.Value) -> ir.Value:
    """Return the value that another is a rearrangement of, so that both have the same grid."""
    node = value.producer()
    while node is not None and graphs.is_op(node, *REARRANGING) and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def kinds_of(layers: list[WeightedLayer], data_outputs: tuple[str, ...]) -> dict[str, str]:
    """Return the kind of each layer that has one of `PINS`, by its name."""
    by_node = {layer.node: layer for layer in layers}
    before = {layer.name: _reached(layer, by_node, forward=False) for layer in layers}
    after = {layer.name: _reached(layer, by_node, forward=True) for layer in layers}
    kinds = {}
    for layer in layers:
        ends = {str(value.name) for value in after[layer.name][1]}
        if layer.is_convolution and all(other.is_convolution for other in before[layer.name][0]):
            kinds[layer.name] = "front"
        elif layer.is_convolution and layer.groups > 1:
            kinds[layer.name] = "depthwise"
        elif not after[layer.name][0] and ends & set(data_outputs):
            kinds[layer.name] = "output"
    return kinds


def _reached(
    layer: WeightedLayer, layers: dict[ir.Node, WeightedLayer], *, forward: bool
) -> tuple[list[WeightedLayer], list[ir.Value]]:
    """Return all layers before or after one, and the graph outputs that are reached."""
    pending, seen = [layer.node], {layer.node}
    reached_layers: list[WeightedLayer] = []
    ends: list[ir.Value] = []
    while pending:
        node = pending.pop()
        if node in layers and node is not layer.node:
            reached_layers.append(layers[node])
        if forward:
            ends += [value for value in node.outputs if value.is_graph_output()]
            near = [use.node for value in node.outputs for use in value.uses()]
        else:
            near = [maker for value in node.inputs if value is not None and (maker := value.producer()) is not None]
        for neighbour in near:
            if neighbour not in seen:
                seen.add(neighbour)
                pending.append(neighbour)
    return reached_layers, ends
