"""Assembles training batches of whole sequences: each stream is a row, and rows are padded along the time axis.

Rows of one batch have equal sizes but along the axis of time, where shorter ones are filled up: frames do not read what
comes behind their chunk, or no steps could be derived. Models without such an axis are given equal rows.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from compiler.graph.stages import Array, Feed


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """Some sequences.

    Attributes:
        feed: the arguments, [rows, ..].
        lengths: frames of every row, int64 [rows]; zeros where there is no axis of time.
    """

    feed: Feed
    lengths: Array


def joined(stream: Sequence[Feed], along: Mapping[str, int]) -> Feed:
    """Return the calls of a stream as one call over the whole sequence.

    Args:
        stream: its feeds.
        along: the axis of time, by input that has it; other inputs are taken from the last call.
    """
    return {
        name: np.concatenate([feed[name] for feed in stream], axis=along[name]) if name in along else array
        for name, array in stream[-1].items()
    }


class Batches:
    """Draws batches.

    Args:
        sequences: feeds of one row.
        along: the axis of time, by input that has it.
        rows: most rows of a batch.
    """

    def __init__(self, sequences: Sequence[Feed], along: Mapping[str, int], rows: int) -> None:
        self.sequences, self.along, self.rows = sequences, along, rows
        self.alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        self.kinds = [self._kind(feed) for feed in sequences]
        for at, kind in enumerate(self.kinds):
            self.alike[kind].append(at)

    def _kind(self, feed: Feed) -> tuple[object, ...]:
        """Return the sizes that rows of one batch share."""
        return tuple(
            (name, *(size for axis, size in enumerate(array.shape) if axis != self.along.get(name)))
            for name, array in feed.items()
        )

    def draw(self, chance: np.random.Generator) -> Batch:
        """Return a random batch of sequences of equal sizes."""
        alike = self.alike[self.kinds[chance.integers(len(self.sequences))]]
        return self.of(chance.choice(alike, size=min(self.rows, len(alike)), replace=False).tolist())

    def every(self) -> list[Batch]:
        """Return all sequences, in batches."""
        return [
            self.of(alike[at : at + self.rows])
            for alike in self.alike.values()
            for at in range(0, len(alike), self.rows)
        ]

    def of(self, chosen: Sequence[int]) -> Batch:
        """Return a batch of these sequences of equal sizes."""
        feeds = [self.sequences[at] for at in chosen]
        lengths = [
            next((array.shape[self.along[name]] for name, array in feed.items() if name in self.along), 0)
            for feed in feeds
        ]
        feed = {name: np.concatenate([self._filled(each, name, max(lengths)) for each in feeds]) for name in feeds[0]}
        return Batch(feed, np.array(lengths, np.int64))

    def _filled(self, feed: Feed, name: str, length: int) -> Array:
        """Return an input extended to the longest row by repeating its last frame, which is a legal number."""
        array = feed[name]
        if name not in self.along:
            return array
        axis = self.along[name]
        missing = [(0, length - size if at == axis else 0) for at, size in enumerate(array.shape)]
        return np.pad(array, missing, mode="edge")
