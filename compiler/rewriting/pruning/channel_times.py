"""Measures the time of the subgraph that makes and reads an inner axis, for different numbers of its entries.

The part is run alone, on what its own inputs are in one call of a stream, with every number in turn. Only numbers at
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
from compiler.graph.stages import Array, Lowered
from compiler.rewriting.pruning.cutting import cut
from compiler.rewriting.pruning.inner_axes import InnerAxis, inner_axes

MOST_WIDTHS = 16
"""Numbers that are timed of one axis; steps of a sixteenth are finer than what a time tells apart."""

FASTER = 0.99
"""Time of a number that is offered, at most, beside that of the next larger one that is."""


@dataclasses.dataclass(frozen=True)
class Width:
    """A number of entries that is offered.

    Attributes:
        entries: that stay.
        seconds: of one call that the part saves beside all of them.
    """

    entries: int
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


def counts_of(count: int, block: int, tile: int) -> list[int]:
    """Return the numbers of entries that are looked at, descending, at least 1 and smaller than there are.

    Args:
        count: of entries.
        block: channels of each.
        tile: the product reads a multiple of it, where an entry has fewer channels.
    """
    fewest = -(-tile // block)
    step = fewest * -(-count // (fewest * MOST_WIDTHS))
    return list(range(fewest * ((count - 1) // fewest), 0, -step))


class ChannelTimes:
    """Times of parts of one graph; parts that are alike are measured once.

    Args:
        lowered: the graph.
        values: what its computed values and inputs are in one call, by name.
        tile: numbers of channels are multiples of it.
        stamp: the pass.
    """

    def __init__(self, lowered: Lowered, values: Mapping[str, Array], tile: int, stamp: str) -> None:
        self.lowered, self.values, self.tile, self.stamp = lowered, values, tile, stamp
        self._known: dict[object, list[Width]] = {}

    def offered(self, axis: InnerAxis) -> list[Width]:
        """Return the numbers of entries of an axis that make its part faster, the largest first."""
        key = self._likeness(axis)
        if key not in self._known:
            counts = counts_of(axis.count, axis.block, self.tile)
            seconds = seconds_of([self._call(axis, count) for count in (axis.count, *counts)])
            self._known[key] = _faster(counts, seconds)
        return self._known[key]

    def _likeness(self, axis: InnerAxis) -> object:
        """Return what the time of a part depends on: its operators, and the shapes of what it reads."""
        makers = [node.op_type for value in axis.values if (node := value.producer()) is not None]
        weights = sorted(str(value.shape) for value, _ in axis.constants)
        read = (*axis.sources, *(value for value, _ in axis.carried))
        return (axis.count, *makers, *weights, *(self.values[str(value.name)].shape for value in read))

    def _call(self, axis: InnerAxis, count: int) -> Call:
        """Return what runs the part with its first entries alone; how long it takes does not depend on which."""
        model, feeds = graphs.clone(self.lowered.model), dict(self.values)
        (copied,) = [other for other in inner_axes(model, self.lowered.states)[0] if other.name == axis.name]
        kept = np.arange(count)
        if count < axis.count:
            cut(model, copied, kept, self.stamp)
            for value, along in copied.carried:
                array = feeds[str(value.name)]
                feeds[str(value.name)] = np.take(array, copied.indices(kept, array.shape[along]), axis=along)
        part = Part(model.graph, [copied.product.outputs[0]], copied.sources)
        return call_of(part.model, feeds)


def _faster(counts: Sequence[int], seconds: Sequence[float]) -> list[Width]:
    offered, last = list[Width](), seconds[0]
    for count, needed in zip(counts, seconds[1:], strict=True):
        if needed <= FASTER * last:
            offered.append(Width(count, seconds[0] - needed))
            last = needed
    return offered
