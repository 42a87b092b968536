"""Defines caches in which each frame has its own slot, the oldest first, and a call returns its new frames alone.

A step writes its new frames and does not move the rest of the cache. Free slots hold the initial value, so that a graph
that reads the cache need not overwrite them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import Move, StateKind


@dataclass(frozen=True)
class Appended(StateKind):
    """A cache to which each call appends its frames."""

    name: ClassVar[str] = "left-aligned caches to which calls append"
    side: ClassVar[str] = "left"
    update: ClassVar[str] = "append"
    is_given_whole: ClassVar[bool] = False
    needs_whole: ClassVar[bool] = True

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """Write the new frames behind the valid ones."""
        return ((slice(length, length + added), slice(added)),)
