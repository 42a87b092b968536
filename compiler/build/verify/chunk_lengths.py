"""Cuts the recipe's data into streams with chunks of every length, to test chunks shorter than a call's slots.

chunks of 8 -> 8, 1, 8, 2, 8, 3, ...    a chunk of every length follows a whole one, in one stream
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from compiler.graph import model as graphs
from compiler.graph.runners.callers_view import caller_dims
from compiler.graph.stages import Feed, Lowered, PaddedAxis

CALLS = 3
"""Of a stream that is tried at one length."""

MOST = 64
"""Lengths that are tried where chunks are longer: the shortest ones, the longest ones, and some between."""


def chunk_axis(lowered: Lowered) -> PaddedAxis | None:
    """Return the axis along which chunks may be shortened; None without one, or with several."""
    axes = [axis for axis in lowered.padded_axes if not axis.is_held]
    return axes[0] if lowered.states and len(axes) == 1 else None


def held_axes(lowered: Lowered) -> list[PaddedAxis]:
    """Return the axes along which a stream has one length."""
    return [axis for axis in lowered.padded_axes if axis.is_held]


def length_of(lowered: Lowered, axis: PaddedAxis, feed: Feed) -> int:
    """Return the length of a chunk."""
    symbol, dims = graphs.symbol(axis.axis), caller_dims(lowered)
    found = (array.shape[list(dims[name]).index(symbol)] for name, array in feed.items() if symbol in dims[name])
    return int(next(found))


def first_entries(lowered: Lowered, axis: PaddedAxis, feed: Feed, length: int) -> Feed:
    """Return the first entries of a chunk."""
    symbol, dims = graphs.symbol(axis.axis), caller_dims(lowered)
    return {
        name: array[tuple(slice(length) if dim == symbol else slice(None) for dim in dims[name])]
        for name, array in feed.items()
    }


@dataclasses.dataclass(frozen=True)
class Flush:
    """What completes a stream whose outputs lag.

    Attributes:
        entries: that are fed, by input; none where nothing lags.
        values: the number that they are, by input; 0 for others.
    """

    entries: Mapping[str, int] = dataclasses.field(default_factory=dict)
    values: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def feeds(self, lowered: Lowered, feed: Feed, axis: PaddedAxis) -> list[Feed]:
        """Return the chunk that flushes a stream, in the form of a feed; none where nothing lags."""
        symbol, dims = graphs.symbol(axis.axis), caller_dims(lowered)
        filled = {
            name: np.full(
                [
                    self.entries[name] if dim == symbol else size
                    for dim, size in zip(dims[name], array.shape, strict=True)
                ],
                self.values.get(name, 0.0),
                array.dtype,
            )
            for name, array in feed.items()
            if name in self.entries
        }
        return [filled] if filled else []


def lengths_to_try(least: int, most: int) -> list[int]:
    """Return every length from the shortest to the longest, or at most `MOST` of them."""
    every = range(least, most + 1)
    if len(every) <= MOST:
        return list(every)
    between = np.linspace(least + MOST // 4, most - MOST // 4, MOST // 2).astype(int)
    return sorted({*every[: MOST // 4], *between.tolist(), *every[-MOST // 4 :]})


def of_every_length(lowered: Lowered, stream: Sequence[Feed]) -> list[Feed]:
    """Return a stream in which a chunk of every length follows a whole one, made from the chunks of the data.

    Args:
        lowered: a padded graph with an axis of chunks.
        stream: feeds of one row.
    """
    axis = chunk_axis(lowered)
    assert axis is not None
    most = max(length_of(lowered, axis, feed) for feed in stream)
    whole = [feed for feed in stream if length_of(lowered, axis, feed) == most]
    return list(_in_turns(lowered, axis, whole, lengths_to_try(axis.minimum, most)))


def streams_of_every_length(lowered: Lowered, axis: PaddedAxis, streams: Sequence[Sequence[Feed]]) -> list[list[Feed]]:
    """Return the first calls of the longest stream along a held axis, shortened to every length."""
    stream = max(streams, key=lambda feeds: length_of(lowered, axis, feeds[0]))[:CALLS]
    lengths = lengths_to_try(axis.minimum, length_of(lowered, axis, stream[0]))
    return [[first_entries(lowered, axis, feed, length) for feed in stream] for length in lengths]


def streams_that_fit(lowered: Lowered, feeds: Sequence[Feed]) -> list[list[Feed]]:
    """Split chunks into as many streams as needed.

    A stream ends when its slots are full, and with a chunk that is shorter than those that are masked as a whole.
    """
    axis = chunk_axis(lowered)
    slots = [cache.slots for cache in lowered.caches if cache.is_whole]
    if axis is None or not slots:
        return [list(feeds)]
    streams: list[list[Feed]] = []
    frames, whole = min(slots), max(cache.chunk for cache in lowered.caches)
    for feed in feeds:
        length = length_of(lowered, axis, feed)
        if frames + length > min(slots) or frames % whole:
            streams.append([])
            frames = 0
        streams[-1].append(feed)
        frames += length
    return streams


def _in_turns(lowered: Lowered, axis: PaddedAxis, whole: Sequence[Feed], lengths: Sequence[int]) -> Iterator[Feed]:
    for number, length in enumerate(lengths):
        yield whole[2 * number % len(whole)]
        yield first_entries(lowered, axis, whole[(2 * number + 1) % len(whole)], length)


def varied(lowered: Lowered, stream: Sequence[Feed], turn: int = 0) -> Sequence[Feed]:
    """Return a stream of which every other chunk is shortened to another length, if chunks may be shorter.

    Where chunks are masked as a whole, a shortened one ends its stream: the last one is. Along held axes all calls are
    shortened to one length.

    Args:
        lowered: a padded graph.
        stream: feeds of one row.
        turn: shifts the lengths, so that streams in one batch differ.
    """
    for held in held_axes(lowered):
        most = length_of(lowered, held, stream[0])
        length = most - (turn + 1) % (most - held.minimum + 1)
        stream = [first_entries(lowered, held, feed, length) for feed in stream]
    axis = chunk_axis(lowered)
    if axis is None:
        return stream
    feeds = list(stream)
    is_cut_last = any(cache.chunk > 1 for cache in lowered.caches)
    for call in [len(feeds) - 1] if is_cut_last else range(turn % 2, len(feeds), 2):
        most = length_of(lowered, axis, feeds[call])
        feeds[call] = first_entries(
            lowered, axis, feeds[call], axis.minimum + (turn + call // 2) % (most - axis.minimum + 1)
        )
    return feeds
