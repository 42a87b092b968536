"""Caches of the newest frames in which a new frame takes the slot of the oldest: a call gives its new frames alone.

A step then moves its frames and not the whole cache. Until the slots are full, frames lie from the first slot on and
free slots hold the initial value; from then on the oldest frame may lie in any slot, which the graph cannot tell. A
length counts on from `slots` to `2 * slots - 1` and around, so that it says both how many frames there are and where
the oldest one lies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runtime_lite.states.kind import Lengths, Move, StateKind


@dataclass(frozen=True)
class Ring(StateKind):
    """A cache whose slots are written in turn."""

    name: ClassVar[str] = "left-aligned caches whose oldest frames are overwritten"
    side: ClassVar[str] = "left"
    update: ClassVar[str] = "ring"
    is_given_whole: ClassVar[bool] = False

    def most(self, slots: int) -> int:
        """The length of a full cache whose oldest frame is in the last slot."""
        return 2 * slots - 1

    def valid(self, slots: int, lengths: Lengths) -> Lengths:
        """The length, but at most the number of slots."""
        frames: Lengths = np.minimum(lengths, slots)
        return frames

    def after(self, slots: int, lengths: Lengths, added: Lengths | int) -> Lengths:
        """Lengths of full caches go from `slots` to `2 * slots - 1` and start again."""
        frames = lengths + added
        counted: Lengths = np.where(frames < slots, frames, slots + frames % slots)
        return counted

    def oldest(self, slots: int, length: int) -> int:
        """The slot that is written next, of a full cache."""
        return 0 if length < slots else length % slots

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """The newest frames that fit, up to the last slot and on from the first."""
        first = max(added - slots, 0)
        at = (length + first) % slots
        turn = min(added, first + slots - at)
        ahead = (slice(at, at + turn - first), slice(first, turn))
        return (ahead,) if turn == added else (ahead, (slice(0, added - turn), slice(turn, added)))
