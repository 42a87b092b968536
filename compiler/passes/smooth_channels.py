"""Moves per-channel scales from layer normalisations into the MatMuls that follow, to quantise with less error.

Before:
    y = LayerNormalization(x, gamma, beta); z = MatMul(y, W)
After:
    y = LayerNormalization(x, gamma / s, beta / s); z = MatMul(y, W * s)        # s [channels], powers of two

Requires: calibration data; every reader of y is a product with constant weights.
Ensures: channels of y differ less in their largest value, so that later rounding loses less.
Keeps: normalisations read by anything else. Nothing is moved through Swish, gates or softmax, which are not linear.
Numerics: exact to the bit, since powers of two change exponents only, as long as nothing leaves the normal numbers.
Source: SmoothQuant (Xiao et al. 2023), s = max|y|^a / max|W|^(1-a) per channel.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.calib.grid import Array
from compiler.calib.watched_streams import calibration_of
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, Refusal
from compiler.numerics.quantization.recording import Wanted, record
from compiler.numerics.quantization.weighted_layers import WeightedLayer, find_layers

LARGEST_EXPONENT = 6
"""Factors stay within 2^-6..2^6: far from where float32 ends."""


@dataclasses.dataclass(frozen=True)
class SmoothChannels:
    """Scales moved from data into weights.

    Attributes:
        strength: the exponent a, 0..1: how much of the difference between channels the weights take over.
    """

    strength: float = 0.5

    name: ClassVar[str] = "smooth_channels"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = True

    def apply(self, lowered: Lowered) -> Outcome:
        """Move scale from channels of data into weights, by powers of two; see the module docstring.

        Raises:
            Refused: there are no calibration data, or the first call is a graph of its own.
        """
        graphs.infer_shapes(lowered.model)
        layers = {layer.node: layer for layer in find_layers(lowered.model)}
        sites, refused = [], []
        for node in lowered.model.graph:
            if not graphs.is_op(node, "LayerNormalization") or len(node.inputs) < 2:
                continue
            readers = [layers.get(use.node) for use in node.outputs[0].uses()]
            products = [layer for layer in readers if layer is not None and not layer.is_convolution]
            if products and len(products) == len(readers) and not node.outputs[0].is_graph_output():
                sites.append((node, products))
            elif products:
                refused.append(Refusal(f"{node.name} is read by more than products with constant weights"))
        if not sites:
            return Outcome(lowered, refused=tuple(refused))
        streams = calibration_of(lowered, otherwise=f"leave {self.name} out").streams
        table = record(lowered, [Wanted(str(node.outputs[0].name), -1) for node, _ in sites], streams)
        changed = 0
        for node, products in sites:
            largest = table.tensors[str(Wanted(str(node.outputs[0].name), -1))].largest
            factors = _factors(largest, products, self.strength)
            if np.any(factors != 1):
                _fold(lowered.model, node, products, factors)
                changed += 1
        graphs.prune(lowered.model)
        return Outcome(
            lowered,
            matched=len(sites),
            rewritten=changed,
            refused=tuple(refused),
            detail=f"{table.calls} calls, table {table.digest[:12]}",
        )


def _factors(largest: Array, products: Sequence[WeightedLayer], strength: float) -> Array:
    """Return powers of two, float32 [channels], that divide the data and multiply the weights; 1 at the median."""
    of_weights = np.max([np.abs(layer.weights).max(axis=1) for layer in products], axis=0)
    held = (largest > 0) & (of_weights > 0)
    exponents = np.zeros(len(largest))
    exponents[held] = strength * np.log2(largest[held]) - (1 - strength) * np.log2(of_weights[held])
    if held.any():
        exponents[held] -= np.median(exponents[held])
    found: Array = np.exp2(np.clip(np.rint(exponents), -LARGEST_EXPONENT, LARGEST_EXPONENT)).astype(np.float32)
    return found


def _fold(model: ir.Model, node: ir.Node, products: Sequence[WeightedLayer], factors: Array) -> None:
    insert = graphs.Inserter(model, SmoothChannels.name, before=node)
    for index, label in ((1, "gain"), (2, "shift")):
        array = graphs.array_of(node.inputs[index]) if len(node.inputs) > index else None
        if array is not None:
            name = f"{node.name}_{label}"
            node.replace_input_with(index, insert.constant((array / factors).astype(np.float32), name))
    for layer in products:
        scaled = (layer.weights * factors[:, None]).astype(np.float32)
        layer.node.replace_input_with(1, insert.constant(scaled, f"{layer.name}_weights"))
