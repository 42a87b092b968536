"""Converts states that are stored as 8-bit quantization codes to the numbers that the codes represent.

A state is coded where it is of 8-bit integers and every entry that it is given was written by `QuantizeLinear` on one
constant grid, or moved there from the state itself: the graph says all there is to say, so that no record can say
otherwise. Who reads them may compute on codes.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import MOVING
from compiler.graph.stages import Array, Lowered, State

CODE_TYPES = (ir.DataType.INT8, ir.DataType.UINT8)
"""Types of codes."""

ALONG_AXES = frozenset({"Concat", "Identity", "Slice", "Where"})
"""A list of its own: moves that leave every axis in its place."""


@dataclasses.dataclass(frozen=True)
class Codes:
    """A grid of 8-bit integers: number = scale * (code - zero).

    Attributes:
        scales: float32, one, or one per entry of an axis.
        axis: along which they lie; of one scale, any.
        zero: the code of 0.
        signed: whether codes are int8; else uint8.
    """

    scales: Array
    axis: int
    zero: int = 0
    signed: bool = True

    def numbers(self, codes: Array) -> Array:
        """Return the numbers, float32, that codes stand for."""
        found: Array = (codes.astype(np.float32) - np.float32(self.zero)) * self._along(codes.ndim)
        return found

    def codes(self, numbers: Array) -> Array:
        """Return the codes nearest to numbers; those outside the grid become its ends, NaN becomes 0."""
        limits = np.iinfo(np.int8 if self.signed else np.uint8)
        with np.errstate(invalid="ignore"):
            found = np.clip(np.rint(numbers / self._along(numbers.ndim)) + self.zero, limits.min, limits.max)
        codes: Array = np.nan_to_num(found, nan=self.zero).astype(limits.dtype)
        return codes

    def _along(self, rank: int) -> Array:
        if self.scales.ndim == 0:
            return self.scales
        found: Array = self.scales.reshape([-1 if at == self.axis else 1 for at in range(rank)])
        return found


def codes_of(lowered: Lowered, name: str) -> Codes | None:
    """Return the grid of the codes that a state holds, by its input; None where it holds no codes."""
    state = next((state for state in lowered.states if state.input == name), None)
    if state is None:
        return None
    given, kept = graphs.inputs_named(lowered.model).get(name), graphs.outputs_named(lowered.model).get(state.output)
    if given is None or kept is None or given.dtype not in CODE_TYPES:
        return None
    return _grid(lowered.model, state, given, kept)


def _grid(model: ir.Model, state: State, given: ir.Value, kept: ir.Value) -> Codes | None:
    """Return the single grid of all values written into a state; None where there is none."""
    written: list[ir.Node] = []
    moves: list[ir.Node] = []
    for node in _makers(kept, given):
        if node is None:
            return None
        (written if graphs.is_op(node, "QuantizeLinear") else moves).append(node)
    grids = [grid_of(node) for node in written]
    first = grids[0] if grids else None
    if first is None or any(grid is None or not same_grid(grid, first) for grid in grids):
        return None
    stays = all(graphs.is_op(node, *ALONG_AXES) for node in moves)
    dims = graphs.dims_of(kept) or ()
    if first.scales.ndim and not (stays and first.axis < len(dims) and dims[first.axis] == first.scales.size):
        return None
    return first


def _makers(value: ir.Value, given: ir.Value) -> Iterator[ir.Node | None]:
    """Yield the nodes that write or move the content of a value; None stands for a node that computes."""
    pending, seen = [value], {value}
    while pending:
        value = pending.pop()
        node = value.producer()
        if value is given or graphs.array_of(value) is not None:
            continue
        moved = [] if node is None else moved_by(node)
        yield node if moved or graphs.is_op(node, "QuantizeLinear") else None
        pending += [each for each in moved if each not in seen]
        seen.update(moved)


def moved_by(node: ir.Node) -> list[ir.Value]:
    """Return the operands that a movement passes on to its results; empty for other nodes."""
    if graphs.is_op(node, "Concat"):
        operands = list(node.inputs)
    elif graphs.is_op(node, "Where"):
        operands = list(node.inputs[1:3])
    else:
        operands = list(node.inputs[:1]) if graphs.is_op(node, *MOVING - {"Pad"}) else []
    return [value for value in operands if value is not None]


def grid_of(node: ir.Node) -> Codes | None:
    """Return the grid of a quantizing or dequantizing node; None where it is computed, or not of 8 bits."""
    scales = graphs.array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    point = node.inputs[2] if len(node.inputs) > 2 else None
    zeros = np.zeros(1, np.uint8) if point is None else graphs.array_of(point)
    if scales is None or zeros is None or scales.dtype != np.float32 or zeros.dtype not in (np.int8, np.uint8):
        return None
    if scales.ndim > 1 or np.unique(zeros).size != 1:
        return None
    rank = len(node.inputs[0].shape or ()) if node.inputs[0] is not None else 0
    axis = axis_of(node, rank) if scales.ndim and rank else 0
    return Codes(scales if scales.size > 1 else scales.reshape(()), axis, int(zeros.flat[0]), zeros.dtype == np.int8)


def same_grid(one: Codes, other: Codes) -> bool:
    """Whether two grids give equal codes to equal numbers."""
    signs = (one.zero, one.signed) == (other.zero, other.signed)
    return signs and np.array_equal(one.scales, other.scales) and (not one.scales.ndim or one.axis == other.axis)


def states_in_numbers(lowered: Lowered, states: Mapping[str, Array]) -> dict[str, Array]:
    """Return states by input name, with coded ones as the numbers that they stand for."""
    return {name: _in_numbers(lowered, name, array) for name, array in states.items()}


def outputs_in_numbers(lowered: Lowered, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return outputs by name, with coded states as the numbers that they stand for."""
    fed = {state.output: state.input for state in lowered.states}
    return {name: _in_numbers(lowered, fed.get(name, ""), array) for name, array in outputs.items()}


def _in_numbers(lowered: Lowered, name: str, array: Array) -> Array:
    codes = codes_of(lowered, name) if array.dtype in (np.int8, np.uint8) else None
    return array if codes is None else codes.numbers(array)
