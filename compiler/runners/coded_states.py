"""States that hold codes of a grid: which they are, and the numbers that they stand for.

A state is coded where its input is of int8 and read by a `DequantizeLinear` with constant scales and by nothing else:
the graph says all there is to say, so that no record can say otherwise.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.stages import Array, Lowered


@dataclasses.dataclass(frozen=True)
class Codes:
    """A symmetric grid of int8: number = scale * code.

    Attributes:
        scales: float32, one, or one per entry of an axis.
        axis: along which they lie; of one scale, any.
    """

    scales: Array
    axis: int

    def numbers(self, codes: Array) -> Array:
        """What int8 codes stand for, float32."""
        found: Array = codes.astype(np.float32) * self._along(codes.ndim)
        return found

    def codes(self, numbers: Array) -> Array:
        """The codes nearest to some numbers, int8; what lies outside of the grid is taken for its end, NaN for 0."""
        with np.errstate(invalid="ignore"):
            found = np.clip(np.rint(numbers / self._along(numbers.ndim)), -128, 127)
        codes: Array = np.nan_to_num(found).astype(np.int8)
        return codes

    def _along(self, rank: int) -> Array:
        if self.scales.ndim == 0:
            return self.scales
        found: Array = self.scales.reshape([-1 if at == self.axis else 1 for at in range(rank)])
        return found


def codes_of(model: ir.Model, name: str) -> Codes | None:
    """The grid of the codes that an input holds; None where it holds none."""
    value = house.inputs_named(model).get(name)
    readers = [] if value is None else house.consumers_of(value)
    if value is None or value.dtype != ir.DataType.INT8 or len(readers) != 1:
        return None
    node, scales = readers[0], house.array_of(readers[0].inputs[1]) if len(readers[0].inputs) > 1 else None
    if not house.is_op(node, "DequantizeLinear") or node.inputs[0] is not value or scales is None:
        return None
    return Codes(scales, house.int_attribute(node, "axis", 1) % len(value.shape or (0,)))


def states_in_numbers(lowered: Lowered, states: Mapping[str, Array]) -> dict[str, Array]:
    """States by input name, those that are coded in the numbers that they stand for."""
    return {name: _in_numbers(lowered, name, array) for name, array in states.items()}


def outputs_in_numbers(lowered: Lowered, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name, states that are coded in the numbers that they stand for."""
    fed = {state.output: state.input for state in lowered.states}
    return {name: _in_numbers(lowered, fed.get(name, ""), array) for name, array in outputs.items()}


def _in_numbers(lowered: Lowered, name: str, array: Array) -> Array:
    codes = codes_of(lowered.model, name) if array.dtype == np.int8 else None
    return array if codes is None else codes.numbers(array)
