"""Records the values of a graph on calibration streams, as histograms and sample rows, to choose grids by.

Streams begin with empty caches and carry them from call to call: numbers drawn for caches show ranges that no call has.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from compiler.calib.histogram import Histogram, Table
from compiler.calib.watched_streams import run_streams
from compiler.errors import DataError
from compiler.graph import model as graphs
from compiler.graph.runners.instrumented import measured
from compiler.graph.stages import Feed, Lowered
from compiler.numerics.quantization.weighted_layers import WeightedLayer

SHOWN = "slipway.shown."
"""Begins the names of outputs that show a value."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A value to be recorded, and the axis of its channels."""

    value: str
    channel_axis: int

    def __str__(self) -> str:
        return f"{self.value}@{self.channel_axis}"


def inputs_of(layers: Iterable[WeightedLayer]) -> list[Wanted]:
    """Return the values to record: operands of layers, and results of convolutions."""
    found = []
    for layer in layers:
        found.append(Wanted(str(layer.data.name), layer.channel_axis))
        if layer.is_convolution:
            found.append(Wanted(str(layer.result.name), 1))
    return list(dict.fromkeys(found))


def record(lowered: Lowered, wanted: Sequence[Wanted], streams: Sequence[Sequence[Feed]]) -> Table:
    """Record values over all calls of all streams.

    Args:
        lowered: the graph, in floats.
        wanted: values to record.
        streams: feeds of one row each; every stream begins with empty caches.

    Raises:
        DataError: nothing was recorded, or only padding of a value.
    """
    tensors = {str(watched_value): Histogram(watched_value.channel_axis) for watched_value in wanted}
    calls = 0
    watched = measured(lowered, [watched_value.value for watched_value in wanted], SHOWN, _itself)
    for call in run_streams(watched, streams):
        for watched_value in wanted:
            tensors[str(watched_value)].add(call.outputs[f"{SHOWN}{watched_value.value}"])
        calls += 1
    empty = [watched_value.value for watched_value in wanted if not tensors[str(watched_value)].rows.size]
    if empty:
        got = "padding alone" if calls else "no calls"
        raise DataError(
            f"expected numbers in {empty[0]} on the calibration streams, got {got}",
            cure="give data.calibration recordings that the model can answer",
        )
    return Table(tensors, calls)


def _itself(insert: graphs.Inserter, value: ir.Value) -> ir.Value:
    return insert.op("Identity", [value], name="shown", shape=value.shape)
