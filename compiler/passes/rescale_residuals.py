"""Divides residual sums before normalisations by a power of two, so that they do not overflow in half precision.

Before:
    h = MatMul(x, w); s = Add(r, h); y = LayerNormalization(s, gamma, beta)       # s reaches 170 000
After:
    h = MatMul(x, w / 8); s = Add(r, h); y = LayerNormalization(s, ...; epsilon / 64)   # r is written smaller, too

From a value that overflows, the group that must share its scale is grown through operators that are homogeneous in
it (sums, movement, Relu, products with constants). It ends where constants take the scale in: the weights of a product
or the gain of a normalisation that writes into it, a normalisation that reads it, or the weights of a product that do.

Requires: calibration data, which show the overflowing values; one graph.
Ensures: nothing in a group exceeds the largest half-precision number divided by `headroom`, on the calibration data.
Keeps: regions that reach an input, an output, a state, or an operator that is not homogeneous: refused with its name.
Numerics: exact; every factor is a power of two, in weights, gains and (squared) in epsilon.
Source: LayerNormalization(x / c, epsilon / c**2) = LayerNormalization(x, epsilon).
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.calib.magnitudes import HALF_MAX, largest_magnitudes
from compiler.calib.watched_streams import calibration_of
from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.operators.traits import PICKING, PRODUCTS
from compiler.graph.stages import Lowered, Outcome, Refusal

SUMS = ("Add", "Concat", "Max", "Min", "Sub", "Sum", "Where")
"""A list of its own: operators whose operands all have the scale of the result."""

ALONG = (PICKING - {"Expand", "GatherElements", "GatherND", "Tile"}) | {
    "Abs", "AveragePool", "GlobalAveragePool", "LeakyRelu", "MaxPool", "Neg", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceSum", "Relu",
}  # fmt: skip
"""A list of its own: operators that are homogeneous in their first operand."""

FACTORS = ("Div", "Mul")


@dataclasses.dataclass(frozen=True)
class RescaleResiduals:
    """Powers of two in front of normalisations.

    Attributes:
        headroom: how many times larger than in calibration a value may become without overflow.
    """

    name: ClassVar[str] = "rescale_residuals"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = True
    headroom: float = 2.0

    def apply(self, lowered: Lowered) -> Outcome:
        """Divide residual streams that exceed half precision by a power of two; see the module docstring.

        Raises:
            Refused: there are no calibration data, or the first call is a graph of its own.
        """
        magnitudes, _ = largest_magnitudes(lowered, calibration_of(lowered).streams)
        limit = HALF_MAX / self.headroom
        large = [value for value in _computed(lowered.model) if magnitudes.get(str(value.name), 0.0) > limit]
        seen: set[ir.Value] = set()
        refused: list[Refusal] = []
        scales = []
        for value in large:
            if value in seen:
                continue
            group = _SharedScale(lowered.model, value, magnitudes, limit)
            seen |= group.values
            if group.obstacle is not None:
                refused.append(group.obstacle)
                continue
            scales.append(group.rescale())
        detail = "" if not scales else f"divided by {', '.join(str(2**k) for k in scales)}"
        return Outcome(lowered, len(scales) + len(refused), len(scales), tuple(refused), detail=detail)


def _computed(model: ir.Model) -> Iterator[ir.Value]:
    return (output for node in model.graph for output in node.outputs if output.dtype == ir.DataType.FLOAT)


class _SharedScale:
    """All values that must share one scale with a value that overflows.

    Attributes:
        values: the group.
        obstacle: why it cannot be rescaled, or None.
    """

    def __init__(self, model: ir.Model, start: ir.Value, magnitudes: Mapping[str, float], limit: float) -> None:
        self.model, self.start, self.magnitudes, self.limit = model, start, magnitudes, limit
        self.values: set[ir.Value] = set()
        self.constants: set[tuple[ir.Node, int, int]] = set()
        self.norms: set[ir.Node] = set()
        self.obstacle: Refusal | None = None
        self._grow()

    def rescale(self) -> int:
        """Write the scale into constants; return the binary logarithm of the divisor."""
        largest = max(self.magnitudes.get(str(value.name), 0.0) for value in self.values)
        power = math.ceil(math.log2(largest / self.limit))
        for node, index, sign in sorted(
            self.constants, key=lambda constant_operand: (str(constant_operand[0].name), constant_operand[1])
        ):
            value = node.inputs[index]
            array = graphs.array_of(value)
            assert value is not None and array is not None
            insert = graphs.Inserter(self.model, RescaleResiduals.name, before=node)
            scaled = np.ldexp(array, sign * power).astype(array.dtype)
            node.replace_input_with(index, insert.constant(scaled, f"{value.name}_scaled"))
        for norm in self.norms:
            epsilon = graphs.attribute(norm, "epsilon", 1e-5)
            assert isinstance(epsilon, float)
            norm.attributes["epsilon"] = ir.AttrFloat32("epsilon", math.ldexp(epsilon, -2 * power))
        graphs.prune(self.model)
        return power

    def _grow(self) -> None:
        waiting = [self.start]
        while waiting and self.obstacle is None:
            value = waiting.pop()
            if value in self.values:
                continue
            self.values.add(value)
            waiting += self._towards_makers(value)
            for node in graphs.consumers_of(value):
                waiting += self._towards_readers(value, node)
            if value.is_graph_output():
                self._stop(value, "it is an output of the graph", value.producer())

    def _towards_makers(self, value: ir.Value) -> list[ir.Value]:
        """Return the operands that must be scaled with a value; records constants that absorb the scale."""
        node = value.producer()
        if node is None:
            return self._stop(value, "it is an input of the graph", None)
        if graphs.is_op(node, *SUMS):
            return self._operands(node, range(1 if node.op_type == "Where" else 0, len(node.inputs)))
        if graphs.is_op(node, *ALONG):
            return self._operands(node, range(1))
        if graphs.is_op(node, *PRODUCTS) and self._note(node, 1, -1):
            return self._operands(node, range(2, len(node.inputs)))
        if graphs.is_op(node, "LayerNormalization", "RMSNormalization") and self._note(node, 1, -1):
            return self._operands(node, range(2, len(node.inputs)))
        if graphs.is_op(node, *FACTORS):
            index = 1 if graphs.array_of(node.inputs[1]) is not None else 0
            other = node.inputs[1 - index]
            over = other is not None and self.magnitudes.get(str(other.name), 0.0) > self.limit
            is_factor = graphs.array_of(node.inputs[index]) is not None and (index == 1 or node.op_type == "Mul")
            if is_factor and over and other is not None:
                return [other]
            if is_factor and self._note(node, index, 1 if node.op_type == "Div" else -1):
                return []
        return self._stop(value, f"{node.op_type} cannot take a scale in", node)

    def _towards_readers(self, value: ir.Value, node: ir.Node) -> list[ir.Value]:
        """Return the results that are scaled with a value."""
        first = node.inputs[0] is value
        if graphs.is_op(node, *SUMS) and not (node.op_type == "Where" and first):
            return list(node.outputs)
        if graphs.is_op(node, *ALONG) and first:
            return list(node.outputs)
        if graphs.is_op(node, "LayerNormalization", "RMSNormalization") and first and len(node.outputs) == 1:
            self.norms.add(node)
            return []
        if graphs.is_op(node, *PRODUCTS) and first and self._note(node, 1, 1):
            return []
        if graphs.is_op(node, *FACTORS):
            index = 1 if first else 0
            if graphs.array_of(node.inputs[index]) is not None and (first or node.op_type == "Mul"):
                if self.magnitudes.get(str(node.outputs[0].name), 0.0) > self.limit or node.outputs[0] in self.values:
                    return list(node.outputs)
                self._note(node, index, -1 if node.op_type == "Div" else 1)
                return []
        return self._stop(value, f"{node.op_type} reads it and is not homogeneous", node)

    def _operands(self, node: ir.Node, indices: range) -> list[ir.Value]:
        """Return the operands that join the group; constants among them are scaled."""
        joining = []
        for index in indices:
            value = node.inputs[index]
            if value is not None and value.dtype == ir.DataType.FLOAT and not self._note(node, index, -1):
                joining.append(value)
        return joining

    def _note(self, node: ir.Node, index: int, sign: int) -> bool:
        """Whether an operand is a constant, which is then recorded to be scaled."""
        if graphs.array_of(node.inputs[index]) is None:
            return False
        self.constants.add((node, index, sign))
        return True

    def _stop(self, value: ir.Value, reason: str, node: ir.Node | None) -> list[ir.Value]:
        size = self.magnitudes.get(str(self.start.name), 0.0)
        place = Location(
            node="" if node is None else str(node.name),
            op="" if node is None else node.op_type,
            tensor=str(value.name),
            source=graphs.source_of(node),
        )
        self.obstacle = self.obstacle or Refusal(
            f"{self.start.name} reaches {size:.6g} and cannot be made smaller: {reason}", place
        )
        return []
