"""Chooses a quantisation grid for every float value of a graph, for devices that compute only on integers.

    next_keys = Concat(keys, new)       one grid for all three, and for all calls where next_keys comes back as keys:
                                        what is moved, or carried to the next call, is rounded once
    shares = Softmax(scores)            of scores, what a Softmax cannot tell apart from nothing counts as its limit

Ranges come from calibration streams, which begin with empty caches and carry what the graph answers.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.base.records.precision import TensorRange
from compiler.calib.grid import Grid, grid_of
from compiler.calib.histogram import Histogram
from compiler.calib.magnitudes import HALF_MAX
from compiler.calib.ranges import Range, least_square
from compiler.calib.watched_streams import calibration_of, run_streams
from compiler.errors import DataError
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.runners.coded_states import moved_by
from compiler.graph.runners.instrumented import exposed
from compiler.graph.stages import Array, Lowered
from compiler.numerics.quantization.plans import range_chosen

HEADROOM = 1.25
"""How much further than in calibration a grid of 16 bits reaches: a third of a bit of its step."""

SOFTMAX_REACH = 8.0
"""With `bits * ln 2`, how far below the largest score of a row another has a share of 0 on a grid of shares, also of
one that ends at 2^-10: exp(-8) is 2^-11.5."""


@dataclasses.dataclass(frozen=True)
class SharedGrid:
    """Values that have one grid.

    Attributes:
        values: names of inputs and computed values.
        watched: of these, those whose numbers are computed with or leave the graph.
        score_axes: the axis of the Softmax that reads it, by watched name.
        constants: constants that are moved into the values.
    """

    values: tuple[str, ...]
    watched: tuple[str, ...]
    score_axes: Mapping[str, int]
    constants: tuple[Array, ...]


def is_real(value: ir.Value | None) -> bool:
    """Whether a value holds float32."""
    return value is not None and value.dtype == ir.DataType.FLOAT


def real_values(model: ir.Model) -> list[ir.Value]:
    """Return the inputs and computed values of real numbers, in graph order, without constants and unread ones."""
    values = (*model.graph.inputs, *(output for node in model.graph for output in node.outputs))
    read = (value for value in values if value.uses() or value.is_graph_output())
    return [value for value in read if is_real(value) and graphs.array_of(value) is None]


def shared_grids(lowered: Lowered) -> list[SharedGrid]:
    """Return the values of real numbers that have one grid, in graph order."""
    model = lowered.model
    roots: dict[ir.Value, ir.Value] = {value: value for value in real_values(model)}

    def root_of(value: ir.Value) -> ir.Value:
        while roots.setdefault(value, value) is not value:
            value = roots[value]
        return value

    def share(one: ir.Value, other: ir.Value) -> None:
        roots[root_of(other)] = root_of(one)

    moved_in: dict[ir.Value, list[Array]] = {}
    for node in model.graph:
        results = [output for output in node.outputs if output in roots]
        for moved in _moved_by(node):
            array = graphs.array_of(moved)
            for result in results:
                if array is None:
                    share(moved, result)
                else:  # the same constant is moved into many values, which have no grid in common
                    moved_in.setdefault(result, []).append(array)
    inputs, outputs = graphs.inputs_named(model), graphs.outputs_named(model)
    for state in lowered.states:
        if is_real(inputs[state.input]):
            share(inputs[state.input], outputs[state.output])
    members: dict[ir.Value, list[ir.Value]] = {}
    for value in roots:
        members.setdefault(root_of(value), []).append(value)
    found = (_shared(group, moved_in) for group in members.values())
    return [grid for grid in found if grid is not None]


def _moved_by(node: ir.Node) -> list[ir.Value]:
    data = list(node.inputs[:1]) if graphs.is_op(node, "MaxPool", "Pad") else moved_by(node)
    return [value for value in data if value is not None and is_real(value)]


def _shared(group: Sequence[ir.Value], moved_in: Mapping[ir.Value, Sequence[Array]]) -> SharedGrid | None:
    watched, axes = [], {}
    for value in group:
        readers = [node for node in graphs.consumers_of(value) if value not in _moved_by(node)]
        if value.is_graph_output() or readers:
            watched.append(str(value.name))
        if readers and all(graphs.is_op(node, "Softmax") for node in readers):
            axes[str(value.name)] = axis_of(readers[0], len(value.shape or ()))
    if not watched:
        return None
    constants = tuple(array for value in group for array in moved_in.get(value, ()))
    return SharedGrid(tuple(str(value.name) for value in group), tuple(watched), axes, constants)


def grids_of_values(lowered: Lowered, bits: int) -> tuple[Mapping[str, Grid], list[TensorRange]]:
    """Return the grid of every value by its name, and how each was chosen, on the calibration streams of a graph.

    Args:
        lowered: a graph in float32, for one row.
        bits: of a code, 8 or 16.

    Raises:
        Refused: there are no calibration data, or the first call has a separate graph.
        DataError: a value was never computed, or is padding alone.
    """
    streams = calibration_of(lowered).streams
    groups = shared_grids(lowered)
    tensors = [Histogram(-1, keep_rows=1) for _ in groups]
    reach = bits * math.log(2) + SOFTMAX_REACH
    names = [name for group in groups for name in group.watched]
    inputs = set(graphs.inputs_named(lowered.model))
    calls = 0
    for call in run_streams(exposed(lowered, [name for name in names if name not in inputs]), streams):
        calls += 1
        for group, tensor in zip(groups, tensors, strict=True):
            for name in group.watched:
                array = call.feed[name] if name in inputs else call.outputs[name]
                tensor.add_entries(_as_read(array, group.score_axes.get(name), reach))
    grids: dict[str, Grid] = {}
    ranges = []
    for group, tensor in zip(groups, tensors, strict=True):
        if not tensor.entries:
            raise DataError(
                f"expected numbers in {group.watched[0]} on the calibration streams, got "
                f"{'padding alone' if calls else 'no calls'}",
                cure="give data.calibration recordings that the model can answer",
            )
        for array in () if group.score_axes else group.constants:
            tensor.add_entries(_as_read(array, None, reach))
        chosen = _range_of(group, tensor, bits)
        grid = grid_of(chosen.low, chosen.high, signed=False, bits=bits)
        grids |= dict.fromkeys(group.values, grid)
        ranges.append(range_chosen(group.watched[0], grid, chosen, tensor))
    return grids, ranges


def _as_read(array: Array, score_axis: int | None, reach: float) -> Array:
    """Return numbers as far as their readers tell them apart: what masks write is no range of data.

    NaN stays NaN: it is padding.
    """
    if score_axis is None:
        return np.clip(array, -HALF_MAX, HALF_MAX)
    with np.errstate(invalid="ignore"):
        lowest: Array = array.max(axis=score_axis, keepdims=True) - np.float32(reach)
        return np.maximum(array, lowest)


def _range_of(group: SharedGrid, tensor: Histogram, bits: int) -> Range:
    if bits == 8 and not group.score_axes and tensor.low < tensor.high:
        return least_square(tensor)
    reach = HEADROOM if bits > 8 else 1.0
    return Range(tensor.low * reach, tensor.high * reach, "min-max")
