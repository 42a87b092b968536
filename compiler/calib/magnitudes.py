"""Measures the largest magnitude of each float in a graph on calibration streams, to find half-precision overflows."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.calib.watched_streams import run_streams
from compiler.graph import model as graphs
from compiler.graph.runners.instrumented import measured
from compiler.graph.stages import Array, Feed, Lowered

MAGNITUDE = "slipway.magnitude."
"""Begins the names of outputs that hold the largest magnitude of a value."""

HALF_MAX = float(np.finfo(np.float16).max)
"""65504, the largest finite number in half precision."""


def mask_fills(model: ir.Model) -> set[float]:
    """Return the constants beyond half precision that masks write; any number as low would serve them."""
    found = set()
    for node in model.graph:
        for value in node.inputs[1:] if graphs.is_op(node, "Where") else ():
            array = graphs.array_of(value)
            if array is not None and array.size == 1 and array.dtype.kind == "f":
                number = float(array.reshape(-1)[0])
                found |= {number} if np.isfinite(number) and abs(number) > HALF_MAX else set()
    return found


def with_magnitudes(lowered: Lowered) -> Lowered:
    """Return a copy whose graph also outputs the largest finite magnitude of every float value.

    Constants written by masks are not counted.
    """
    fills = [np.array(abs(fill), np.float32) for fill in sorted(mask_fills(lowered.model))]
    values = (*lowered.model.graph.inputs, *(output for node in lowered.model.graph for output in node.outputs))
    names = [str(value.name) for value in values if value.name and value.dtype and value.dtype.is_floating_point()]
    return measured(lowered, names, MAGNITUDE, lambda insert, value: _largest(insert, value, fills))


def _largest(insert: graphs.Inserter, value: ir.Value, fills: Sequence[Array]) -> ir.Value:
    kind = value.dtype
    assert kind is not None
    zero = insert.constant(np.zeros((), kind.numpy()), f"nothing_{kind.name.lower()}")
    most = insert.constant(np.array(np.finfo(np.float32).max, np.float32), "most")
    size = insert.op("Abs", [value], name="size")
    wide = insert.op("Cast", [size], {"to": int(ir.DataType.FLOAT)}, name="wide_size")
    finite = insert.op("LessOrEqual", [wide, most], name="is_finite", dtype=ir.DataType.BOOL)  # NaN is not
    for fill in fills:
        masked = insert.op("Equal", [wide, insert.constant(fill, "fill")], name="is_fill", dtype=ir.DataType.BOOL)
        kept_in = insert.op("Not", [masked], name="is_kept", dtype=ir.DataType.BOOL)
        finite = insert.op("And", [finite, kept_in], name="is_counted", dtype=ir.DataType.BOOL)
    finite_sizes = insert.op("Where", [finite, size, zero], name="kept_size", dtype=kind)
    return insert.op("ReduceMax", [finite_sizes], {"keepdims": 0}, name="largest", shape=(), dtype=kind)


def largest_magnitudes(
    lowered: Lowered, streams: Sequence[Sequence[Feed]]
) -> tuple[dict[str, float], list[Mapping[str, Array]]]:
    """Return the largest finite magnitude of every float value over all calls, and each stream's last feed.

    Constants written by masks are not counted.
    """
    largest: dict[str, float] = {}
    last: dict[int, Mapping[str, Array]] = {}
    for call in run_streams(with_magnitudes(lowered), streams):
        last[call.stream] = call.feed
        for name, array in call.outputs.items():
            if name.startswith(MAGNITUDE):
                key = name.removeprefix(MAGNITUDE)
                largest[key] = max(largest.get(key, 0.0), float(array))
    return largest, list(last.values())
