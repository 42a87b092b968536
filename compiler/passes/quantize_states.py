"""Stores cache states as 8-bit integers, with scales fixed by calibration.

Before:
    cache [batch, heads, slots, width] float32;  next_cache float32
After:
    cache int8;  numbers = DequantizeLinear(cache, scales);  next_cache = QuantizeLinear(numbers as before, scales)

The frames of a call are read as they are by that call, and as codes by those behind it. A code stands for one number,
and the code nearest to that number is the same code: a carried entry is rounded once, however long it is carried.

Requires: calibration data; float32 states along caches that are padded; no pass behind it that moves states.
Ensures: coded states take a quarter of the bytes; a free slot, 0, is 0; rows are independent, proved anew.
Keeps: states of fixed meaning, which every call computes anew and would round anew: errors would add up.
Numerics: rounds each carried entry to the nearest of 255 steps; beyond the grid it is taken for the end.
Source: a symmetric grid by the largest magnitude. With uniform errors its noise is scale^2 / 12 per entry, so the axis
    is taken for which the mean of the squared scales is least. KIVI (Liu et al. 2024) finds that keys need a scale per
    channel; here calibration decides for each cache.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.calib.noise import decibels
from compiler.calib.watched_streams import calibration_of, noise_between, run_streams
from compiler.errors import DataError, Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.coded_states import Codes
from compiler.graph.stages import Array, Feed, Lowered, Outcome, Refusal, State
from compiler.passes.window_states import rename_output
from compiler.proof.propagation.rows_alone import prove_rows

LARGEST = 127
"""The largest code of a symmetric grid."""


@dataclasses.dataclass(frozen=True)
class QuantizeStates:
    """Caches of 8-bit integers.

    Attributes:
        headroom: how many times larger than in calibration a value may become before it is cut off.
        sqnr_db: least ratio of signal to noise that rounding may leave in any output on the calibration streams, in dB.
    """

    headroom: float = 1.25
    sqnr_db: float = 30.0

    name: ClassVar[str] = "quantize_states"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("pad_axes", "window_states")
    expensive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options."""
        if not self.headroom >= 1.0:
            raise RecipeError(f"headroom: expected 1 or more, got {self.headroom:g}", cure="change the value")

    def apply(self, lowered: Lowered) -> Outcome:
        """Store caches as 8-bit codes; see the module docstring.

        Raises:
            Refused: there are no calibration data, the graph is not padded, or an output's error exceeds the limit.
            DataError: the calibration data leave a cache empty.
        """
        cached = [state for state in lowered.states if lowered.cache_of(state) is not None]
        inputs = graphs.inputs_named(lowered.model)
        chosen = [state for state in cached if inputs[state.input].dtype == ir.DataType.FLOAT]
        left = tuple(
            Refusal(f"expected float32, got {inputs[state.input].dtype}", Location(tensor=state.input))
            for state in cached
            if state not in chosen
        )
        if not chosen:
            return Outcome(lowered, matched=len(cached), refused=left)
        if not lowered.is_padded:
            raise Refused(
                "expected caches with slots, got some that grow", cure="list pad_axes and window_states before"
            )
        streams = calibration_of(lowered).streams
        grids = _grids(lowered, chosen, streams, self.headroom)
        before = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        for state in chosen:
            _write(lowered.model, state, grids[state.input])
        graphs.infer_shapes(lowered.model)
        noise = noise_between(before, lowered, streams)
        for name in lowered.data_outputs:
            if decibels(noise[name]) < self.sqnr_db:
                raise Refused(
                    f"expected {name} at least {self.sqnr_db:g} dB above the rounding of its caches, got "
                    f"{decibels(noise[name]):.1f} dB on the calibration streams",
                    cure="carry the caches in float32, or lower sqnr_db if the task allows it",
                    place=Location(graph=lowered.graph, tensor=name),
                )
        proof = () if lowered.batch_axis is None else (prove_rows(lowered),)
        loudest = max((state.output for state in chosen), key=lambda name: noise[name])
        results = ", ".join(f"{name} {decibels(noise[name]):.1f} dB" for name in lowered.data_outputs)
        whole, coded = (sum(_bytes_of(inputs[state.input]) // size for state in chosen) for size in (1, 4))
        worst = f"of the caches {loudest} least, {decibels(noise[loudest]):.1f} dB"
        detail = f"{whole} to {coded} bytes of a row; {results}; {worst}"
        return Outcome(lowered, len(cached), len(chosen), left, records=proof, detail=detail)


def _grids(
    lowered: Lowered, states: Sequence[State], streams: Sequence[Sequence[Feed]], headroom: float
) -> Mapping[str, Codes]:
    """Return the grid of every state, by its input."""
    largest: dict[str, Array] = {state.input: np.zeros(1, np.float32) for state in states}
    for call in run_streams(lowered, streams):
        for state in states:
            assert state.frames_axis is not None
            sizes = np.nan_to_num(np.abs(call.outputs[state.output]), nan=0.0)
            largest_of_call = np.max(sizes, axis=tuple({0, state.frames_axis}), initial=0.0, keepdims=True)
            largest[state.input] = np.maximum(largest[state.input], largest_of_call)
    for name, array in largest.items():
        if not 0.0 < np.max(array, initial=0.0) < np.inf:
            raise DataError(
                f"expected numbers in {name} to choose a grid by, got {np.max(array, initial=0.0):g} for the largest",
                cure="yield streams of several calls under data.calibration",
                place=Location(graph=lowered.graph, tensor=name),
            )
    return {name: grid_of(array, headroom) for name, array in largest.items()}


def grid_of(largest: Array, headroom: float = 1.0) -> Codes:
    """Return the grid of least noise, with one scale or a scale per entry of one axis.

    Args:
        largest: largest magnitudes, with size 1 on axes that share them.
        headroom: factor by which a value may exceed them.
    """
    axes = [axis for axis, size in enumerate(largest.shape) if size > 1]
    by_axis = {axis: largest.max(axis=tuple(other for other in range(largest.ndim) if other != axis)) for axis in axes}
    if not by_axis:
        return Codes(np.array(largest.max() * headroom / LARGEST, np.float32), 0)
    best = min(by_axis, key=lambda axis: (float(np.mean(by_axis[axis].astype(np.float64) ** 2)), len(by_axis[axis])))
    scales = by_axis[best] * (headroom / LARGEST)
    least = float(largest.max()) * np.finfo(np.float32).eps  # a channel that is always 0 needs a scale, too
    return Codes(np.maximum(scales, least).astype(np.float32), best)


def _write(model: ir.Model, state: State, grid: Codes) -> None:
    """Rewrite a state to enter and leave the graph as codes."""
    value, left = graphs.inputs_named(model)[state.input], graphs.outputs_named(model)[state.output]
    readers = graphs.consumers_of(value)
    attributes = {"axis": grid.axis} if grid.scales.ndim else {}
    first = next((node for node in model.graph if node in readers), None)
    insert = graphs.Inserter(model, QuantizeStates.name, first, graphs.source_of(first))
    scales = insert.constant(grid.scales, f"{value.name}_scales")
    zeros = insert.constant(np.zeros(grid.scales.shape, np.int8), f"{value.name}_zeros")
    numbers = insert.op(
        "DequantizeLinear", [value, scales, zeros], attributes, name=f"{value.name}_numbers", shape=value.shape,
        dtype=value.dtype,
    )  # fmt: skip
    for node in readers:
        for position, operand in enumerate(node.inputs):
            if operand is value:
                node.replace_input_with(position, numbers)
    source = numbers if left is value else left
    value.type = ir.TensorType(ir.DataType.INT8)  # of its own: values may share the record of their type
    insert = graphs.Inserter(model, QuantizeStates.name, source=graphs.source_of(left.producer()))
    codes = insert.op(
        "QuantizeLinear", [source, scales, zeros], attributes, name=f"{state.output}_codes", shape=left.shape,
        dtype=ir.DataType.INT8,
    )  # fmt: skip
    rename_output(model, left, codes, state.output)


def _bytes_of(value: ir.Value) -> int:
    """Return the number of bytes in a row of a float32 state."""
    return 4 * math.prod(size for size in list(value.shape or ())[1:] if isinstance(size, int))
