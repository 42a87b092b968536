"""Chooses how many frames the next audio packet of a voice has, from unplayed sound and measured run times.

A small packet comes soon, a large one costs less per frame. A voice spends at most half of its lead on the next packet,
and prices a frame as if the largest batch were full, because others may join before the packet is:

    c      a step of the largest batch, and its share of the codec's largest chunk
    next   floor((lead / 2 - v - GUARD_NS) / c) frames, v the cost of the codec's largest chunk
    first  the fewest whose sound lasts until the next small packet has been made
    least  the fewest frames at which steps and codec of all voices take `BUSY` of the time that they sound

These rules are ours; `python -m benchmarks.voices` measures what comes of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from runtime_lite.scheduling.clock import NS_PER_MS

GUARD_NS = 2 * NS_PER_MS
"""Time in nanoseconds for handing a packet to a thread that waits for it."""

BUSY = 0.75
"""Part of the device that all voices may take, so that first calls of further ones have time."""

QUIET = 4
"""The house counts as nearly empty while the voices are at most the largest batch divided by this."""


@dataclass(frozen=True)
class PacketSizes:
    """Sizes of packets on one device.

    Attributes:
        frame_ns: length of the sound of a frame.
        chunks: numbers of frames of the codec's chunks, ascending.
        is_padded: whether a chunk may also have any number of frames up to the largest.
        most_rows: rows of the largest batch of steps.
        step_ns: nanoseconds of a step of some voices.
        codec_ns: nanoseconds of the codec for chunks of some frames of some voices.
    """

    frame_ns: int
    chunks: tuple[int, ...]
    is_padded: bool
    most_rows: int
    step_ns: Callable[[int], int]
    codec_ns: Callable[[int, int], int]

    def chunk(self, frames: int) -> int:
        """Return the size of the next chunk of some frames, at least 1."""
        if self.is_padded:
            return min(frames, self.chunks[-1])
        return max(size for size in self.chunks if size <= frames)

    def first(self, voices: int) -> int:
        """Return the number of frames of a first packet.

        Args:
            voices: number of voices, this one included.
        """
        rows = voices if voices * QUIET <= self.most_rows else max(voices, self.most_rows)
        least = self._least(voices)
        lasts = least * self._frame(rows) + self.codec_ns(least, rows) + GUARD_NS
        return min(max(least, math.ceil(lasts / self.frame_ns)), self.chunks[-1])

    def following(self, lead_ns: int, voices: int) -> int:
        """Return the number of frames of a packet behind the first.

        Args:
            lead_ns: length of the sound that was made and not yet played.
            voices: number of voices, this one included.
        """
        rows, largest = max(voices, self.most_rows), self.chunks[-1]
        spent = lead_ns // 2 - self.codec_ns(largest, rows) - GUARD_NS
        return min(max(math.floor(spent / self._frame(rows)), self._least(voices)), largest)

    def _frame(self, voices: int) -> float:
        """Return the nanoseconds of one frame of every voice, with its share of a large chunk of the codec."""
        return max(self.step_ns(voices) + self.codec_ns(self.chunks[-1], voices) / self.chunks[-1], 1.0)

    def _least(self, voices: int) -> int:
        spare = BUSY * self.frame_ns - self.step_ns(voices)
        largest = self.chunks[-1]
        return next((n for n in range(1, largest) if n * spare >= self.codec_ns(n, voices)), largest)
