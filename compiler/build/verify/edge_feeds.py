"""Generates edge feeds for a model's inputs: silence, a constant, an impulse, full scale, the smallest numbers.

Random data show what a graph answers in the middle of its range; what a rewrite has changed at zero, or where a number
overflows, shows at the edges alone. The feeds have the shapes of feeds of the recipe's data and are chained like them.

    silence      0 everywhere
    constant     half of full scale, rounded to a power of two, so that the mean of it is exact
    impulse      full scale in the middle of the first feed, 0 everywhere else
    full_scale   the ends of the range in turns, like the fields of a chessboard
    smallest     the smallest normal numbers of either sign, likewise
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from compiler.graph.stages import Array, Feed
from compiler.recipe.gates import EdgeKind
from compiler.recipe.graph import Graph

CALLS = 3
"""Chained calls per kind: the first meets empty states, the others states that come from the edge itself."""

EXACT = 2.0**53
"""Whole numbers up to this one are computed exactly; a feed of larger ones stays as it is: they name things."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The smallest and the largest number that an input may hold; an edge that lies beyond is clipped to it."""

    low: float
    high: float

    @property
    def peak(self) -> float:
        """Return the end that is farther from zero."""
        return max(self.low, self.high, key=abs)


def _silence(shape: tuple[int, ...], call: int, span: Range, smallest: float) -> Array:
    return np.zeros(shape)


def _constant(shape: tuple[int, ...], call: int, span: Range, smallest: float) -> Array:
    half = abs(span.peak) / 2
    return np.full(shape, np.copysign(2.0 ** np.floor(np.log2(half)), span.peak) if half > 0 else 0.0)


def _impulse(shape: tuple[int, ...], call: int, span: Range, smallest: float) -> Array:
    array = np.zeros(shape)
    if call == 0:
        array[tuple(size // 2 for size in shape)] = span.peak
    return array


def _full_scale(shape: tuple[int, ...], call: int, span: Range, smallest: float) -> Array:
    return np.where(_fields(shape), span.low, span.high)


def _smallest(shape: tuple[int, ...], call: int, span: Range, smallest: float) -> Array:
    return np.where(_fields(shape), -smallest, smallest)


def _fields(shape: tuple[int, ...]) -> Array:
    """Return a checkerboard of any rank, in which neighbours along every axis differ."""
    return np.asarray(np.indices(shape).sum(axis=0) % 2, bool) if shape else np.zeros((), bool)


KINDS: Mapping[EdgeKind, Callable[[tuple[int, ...], int, Range, float], Array]] = {
    "silence": _silence,
    "constant": _constant,
    "impulse": _impulse,
    "full_scale": _full_scale,
    "smallest": _smallest,
}
"""The content of an input by kind: of its shape, the number of the call, its range and the smallest number."""


def edge_feeds(
    kind: EdgeKind, feeds: Sequence[Feed], ranges: Mapping[str, Range], alike: Collection[str] = ()
) -> list[Feed]:
    """Return feeds of one kind in the shapes of others.

    Args:
        kind: kind of edge feed.
        feeds: feeds that give shapes and types, and bounds for inputs without a range.
        ranges: ranges of inputs by name.
        alike: inputs that are the same in every call of a stream.
    """
    return [
        {name: _edge(kind, array, 0 if name in alike else call, ranges.get(name)) for name, array in feed.items()}
        for call, feed in enumerate(feeds)
    ]


def _edge(kind: EdgeKind, array: Array, call: int, span: Range | None) -> Array:
    if not array.size:
        return array
    span, is_whole = span or Range(float(array.min()), float(array.max())), array.dtype.kind in "iub"
    if is_whole and abs(span.peak) > EXACT:
        return array
    smallest = 1.0 if is_whole else float(np.finfo(array.dtype if array.dtype.kind == "f" else np.float32).tiny)
    made = np.clip(KINDS[kind](array.shape, call, span, smallest), span.low, span.high)
    return np.asarray(np.trunc(made) if is_whole else made).astype(array.dtype)


def ranges_of(spec: Graph, streams: Sequence[Sequence[Feed]]) -> dict[str, Range]:
    """Return the range of every input that has one.

    That is the declared range, or for floats the range of the data and zero. Integers without a declared range are
    lengths, indices or rows of tables: they have none, and an edge feed stays within the feed that it is made from,
    which is legal for its shape.

    Args:
        spec: the graph.
        streams: the recipe's data.
    """
    ranges = {}
    for name, input_spec in spec.inputs.items():
        if not input_spec.is_data:
            continue
        if input_spec.range is not None:
            low, high = input_spec.range
            ranges[name] = Range(float(low), float(high))
        elif input_spec.dtype.startswith(("float", "bfloat")):
            arrays = [feed[name] for stream in streams for feed in stream]
            low, high = min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)
            ranges[name] = Range(min(low, 0.0), max(high, 0.0))
    return ranges
