"""Measures how long the part of a graph takes that makes and reads some channels, by how many of them there are.

The part is run alone, on what its own inputs are in one call of a stream, with every width in turn. Only widths at
which it is faster than at all larger ones are offered: kernels work in blocks, and an odd width may cost more.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.paired_rounds import FEW_ROUNDS, Call, Rounds
from compiler.graph.runners.part import Part
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Array
from compiler.rewriting.pruning.cutting import cut
from compiler.rewriting.pruning.inner_axes import InnerAxis, inner_axes

MOST_WIDTHS = 16
"""Widths that are timed of one axis; steps of a sixteenth are finer than what a time tells apart."""

FASTER = 0.99
"""Time of a width that is offered, at most, beside that of the next larger one that is."""


@dataclasses.dataclass(frozen=True)
class Width:
    """A number of channels that is offered.

    Attributes:
        channels: that stay.
        seconds: of one call that the part saves beside all channels.
    """

    channels: int
    seconds: float


def seconds_of(calls: Sequence[Call]) -> list[float]:
    """Return the median time of each call in seconds of computing, run in turns."""
    rounds = Rounds(calls)
    rounds.more(FEW_ROUNDS)
    return [statistics.median(times) for times in zip(*rounds.times, strict=True)]


def call_of(model: ir.Model, feeds: Mapping[str, Array]) -> Call:
    """Return what runs a graph once, as it would ship: with the optimisations of the runtime."""
    session = session_of(model, optimize=True)
    names = [str(value.name) for value in model.graph.outputs]
    fed = {str(value.name): feeds[str(value.name)] for value in model.graph.inputs}
    return lambda: session.run(names, fed)


def widths_of(channels: int, tile: int) -> list[int]:
    """Return the widths that are looked at, descending: multiples of a tile, smaller than the number of channels."""
    step = tile * -(-channels // (tile * MOST_WIDTHS))
    return [width for width in range(tile * ((channels - 1) // tile), 0, -step) if width > 1]


class ChannelTimes:
    """Times of parts of one graph; parts that are alike are measured once.

    Args:
        model: the graph.
        values: what its computed values and inputs are in one call, by name.
        tile: widths are multiples of it.
        stamp: the pass.
    """

    def __init__(self, model: ir.Model, values: Mapping[str, Array], tile: int, stamp: str) -> None:
        self.model, self.values, self.tile, self.stamp = model, values, tile, stamp
        self._known: dict[object, list[Width]] = {}

    def offered(self, axis: InnerAxis) -> list[Width]:
        """Return the widths of an axis that make its part faster, the widest first."""
        key = self._likeness(axis)
        if key not in self._known:
            widths = widths_of(axis.width, self.tile)
            seconds = seconds_of([self._call(axis, width) for width in (axis.width, *widths)])
            self._known[key] = _faster(widths, seconds)
        return self._known[key]

    def _likeness(self, axis: InnerAxis) -> object:
        """Return what the time of a part depends on: its operators, and the shapes of what it reads."""
        makers = [node.op_type for value in axis.values if (node := value.producer()) is not None]
        weights = sorted(str(value.shape) for value, _ in axis.constants)
        return (*makers, *weights, *(self.values[str(value.name)].shape for value in axis.sources))

    def _call(self, axis: InnerAxis, width: int) -> Call:
        """Return what runs the part with its first channels alone; how long it takes does not depend on which."""
        model = graphs.clone(self.model)
        (copied,) = [other for other in inner_axes(model)[0] if other.name == axis.name]
        if width < axis.width:
            cut(model, copied, np.arange(width), self.stamp)
        part = Part(model.graph, [copied.product.outputs[0]], copied.sources)
        return call_of(part.model, self.values)


def _faster(widths: Sequence[int], seconds: Sequence[float]) -> list[Width]:
    offered, last = list[Width](), seconds[0]
    for width, needed in zip(widths, seconds[1:], strict=True):
        if needed <= FASTER * last:
            offered.append(Width(width, seconds[0] - needed))
            last = needed
    return offered
