"""Defines caches in which a new frame overwrites the oldest, and a call returns its new frames alone.

A step writes its new frames and does not move the rest of the cache. Until all slots are full, frames lie from the
first slot on and free slots hold the initial value; after that the oldest frame may lie in any slot, and the graph does
not know which. The length of a full cache goes from `slots` to `2 * slots - 1` and starts again at `slots`, so that it
states both the number of frames and the slot of the oldest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runtime_lite.states.kind import Lengths, Move, StateKind


@dataclass(frozen=True)
class Ring(StateKind):
    """A cache whose slots are written in turn, again from the first after the last."""

    name: ClassVar[str] = "left-aligned caches whose oldest frames are overwritten"
    side: ClassVar[str] = "left"
    update: ClassVar[str] = "ring"
    is_given_whole: ClassVar[bool] = False

    def most(self, slots: int) -> int:
        """Return the length of a full cache whose oldest frame is in the last slot."""
        return 2 * slots - 1

    def valid(self, slots: int, lengths: Lengths) -> Lengths:
        """Return the lengths, limited to the number of slots."""
        frames: Lengths = np.minimum(lengths, slots)
        return frames

    def after(self, slots: int, lengths: Lengths, added: Lengths | int) -> Lengths:
        """Return the new lengths; those of full caches go from `slots` to `2 * slots - 1` and start again."""
        frames = lengths + added
        counted: Lengths = np.where(frames < slots, frames, slots + frames % slots)
        return counted

    def oldest(self, slots: int, length: int) -> int:
        """Return 0 until the cache is full, then the slot that is written next."""
        return 0 if length < slots else length % slots

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """Write the newest frames that fit, up to the last slot and then from the first."""
        first = max(added - slots, 0)
        at = (length + first) % slots
        turn = min(added, first + slots - at)
        ahead = (slice(at, at + turn - first), slice(first, turn))
        return (ahead,) if turn == added else (ahead, (slice(0, added - turn), slice(turn, added)))
