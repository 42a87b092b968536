"""Quantises MatMuls with constant weights to 8-bit integers, with one scale per token computed at run time.

Before:
    y = MatMul(x [batch, 16, 256], W [256, 2048])
After:
    s = Max(ReduceMax(Abs(x), last axis, keepdims), tiny) / 127
    q = QuantizeLinear(x / s, 1, 128)                            # rounds and saturates: uint8 around 128
    y = Cast(MatMulInteger(q, W8, 128)) * s * w                  # W8 int8, w one scale per output channel

Requires: symbolic shapes. No calibration data.
Ensures: a row's result does not depend on its partners, proved anew on the graph as it is afterwards.
Keeps: convolutions, and nodes that the recipe pins.
Numerics: rounds. A token of zeros gives zeros: its scale is not 0.
Source: per-token scales in place of DynamicQuantizeLinear, which makes one scale of the whole batch.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.calib.grid import Array, quantize_weights
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.numerics.quantization.choice import pinned_layers
from compiler.numerics.quantization.placement import CPU, Placement
from compiler.numerics.quantization.weighted_layers import PINS, WeightedLayer, find_layers
from compiler.passes.quantize_static import check_pins
from compiler.proof.propagation.rows_alone import prove_rows

LARGEST = 127.0

SMALLEST = 1e-30
"""Stands for the largest entry of a token of zeros; below it a scale would be no normal number."""


@dataclasses.dataclass(frozen=True)
class QuantizeDynamic:
    """Integers with a scale per token.

    Attributes:
        placement: the target's rules; codes of data are int8 where its integers are signed, else uint8 around 128.
        pins: kinds of layers that stay in float.
        keep_float: what stays in float in any case: names with wildcards, `op:Conv`, `scope:layers.0`.
    """

    placement: Placement = CPU
    pins: tuple[str, ...] = PINS
    keep_float: tuple[str, ...] = ()

    name: ClassVar[str] = "quantize_dynamic"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Quantize products with scales per token at run time; see the module docstring.

        Raises:
            Refused: rows would depend on each other.
        """
        check_pins(self.pins)
        graphs.infer_shapes(lowered.model)
        placement = self.placement
        layers = [layer for layer in find_layers(lowered.model) if not layer.is_convolution]
        pins = pinned_layers(find_layers(lowered.model), lowered.data_outputs, placement, self.pins, self.keep_float)
        free = [layer for layer in layers if layer.name not in pins]
        if not free:
            return Outcome(lowered, precision=tuple(pins.values()))
        written = _Tokens(lowered.model, placement)
        for layer in free:
            written.write(layer)
        graphs.prune(lowered.model)
        proof = () if lowered.batch_axis is None else (prove_rows(lowered),)
        return Outcome(lowered, matched=len(layers), rewritten=len(free), records=proof, precision=tuple(pins.values()))


class _Tokens:
    """Writes the quantised forms; the codes of a value are made once for all that read it."""

    def __init__(self, model: ir.Model, placement: Placement) -> None:
        self.model, self.placement = model, placement
        self.codes: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self.zero: Array = np.array(0, np.int8) if placement.signed else np.array(128, np.uint8)

    def write(self, layer: WeightedLayer) -> None:
        """Replace a product by its quantized form."""
        weights = quantize_weights(layer.weights, layer.weight_axis)
        codes, scale = self._coded(layer.data)
        insert = graphs.Inserter(self.model, QuantizeDynamic.name, before=layer.node)
        name, shape = f"{layer.name}_int8", layer.node.outputs[0].shape
        inputs = [codes, insert.constant(weights.codes, f"{layer.name}_weights")]
        if not self.placement.signed:
            inputs.append(insert.constant(self.zero, "zero_point"))
        sums = insert.op("MatMulInteger", inputs, name=f"{name}_sums", shape=shape, dtype=ir.DataType.INT32)
        to, real = {"to": int(ir.DataType.FLOAT)}, ir.DataType.FLOAT
        numbers = insert.op("Cast", [sums], to, name=f"{name}_numbers", shape=shape, dtype=real)
        scaled = insert.op("Mul", [numbers, scale], name=f"{name}_scaled", shape=shape)
        channels = insert.constant(weights.scales, f"{layer.name}_scales")
        result = insert.op("Mul", [scaled, channels], name=name, shape=shape)
        graphs.take_over(self.model, layer.node.outputs[0], result)

    def _coded(self, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return codes and scale of each token."""
        if value not in self.codes:
            insert = graphs.Inserter.behind(self.model, QuantizeDynamic.name, value)
            shape = list(value.shape or ())
            one = [*shape[:-1], 1] if shape else None
            sizes = insert.op("Abs", [value], name=f"{value.name}_sizes", shape=value.shape)
            largest = insert.op(
                "ReduceMax", [sizes, insert.int64s(-1)], {"keepdims": 1}, name=f"{value.name}_largest", shape=one
            )
            tiny = insert.constant(np.array(SMALLEST, np.float32), "smallest")
            bound = insert.op("Max", [largest, tiny], name=f"{value.name}_bound", shape=one)
            parts = insert.constant(np.array(LARGEST, np.float32), "parts")
            scale = insert.op("Div", [bound, parts], name=f"{value.name}_scale", shape=one)
            steps = insert.op("Div", [value, scale], name=f"{value.name}_steps", shape=value.shape)
            unit = [
                insert.constant(np.array(1.0, np.float32), "unit"),
                insert.constant(self.zero, "zero_point"),
            ]
            kind = ir.DataType.from_numpy(self.zero.dtype)
            codes = insert.op(
                "QuantizeLinear", [steps, *unit], name=f"{value.name}_codes", shape=value.shape, dtype=kind
            )
            self.codes[value] = codes, scale
        return self.codes[value]
