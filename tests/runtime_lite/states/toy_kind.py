"""A kind of state as a newcomer would add it: a ring whose lengths count all frames that a stream has had."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runtime_lite.states.kind import Lengths, Move, StateKind


@dataclass(frozen=True)
class Endless(StateKind):
    """A cache whose slots are written in turn, and whose frames are counted without end."""

    name: ClassVar[str] = "left-aligned caches whose frames are counted without end"
    side: ClassVar[str] = "left"
    update: ClassVar[str] = "endless"
    is_given_whole: ClassVar[bool] = False

    def most(self, slots: int) -> int:
        """As many as an integer holds."""
        return 2**62

    def valid(self, slots: int, lengths: Lengths) -> Lengths:
        """No more than there are slots."""
        frames: Lengths = np.minimum(lengths, slots)
        return frames

    def after(self, slots: int, lengths: Lengths, added: Lengths | int) -> Lengths:
        """All are counted."""
        return lengths + added

    def oldest(self, slots: int, length: int) -> int:
        """The slot that is written next, of a full cache."""
        return 0 if length < slots else length % slots

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """Frame by frame."""
        newest = range(max(added - slots, 0), added)
        return [(slice(at, at + 1), slice(i, i + 1)) for i in newest for at in [(length + i) % slots]]
