"""Defines caches of the newest frames, with the newest in the last slot, which each call returns whole."""

from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import StateKind


@dataclass(frozen=True)
class Window(StateKind):
    """A cache that each call replaces."""

    name: ClassVar[str] = "right-aligned caches that are replaced"
    side: ClassVar[str] = "right"
    update: ClassVar[str] = "replace"

    def oldest(self, slots: int, length: int) -> int:
        """Return the number of free slots, which lie in front of the frames."""
        return slots - length

    def unseen(self, slots: int, length: int) -> slice:
        """Return the free slots, which every call overwrites before it reads them."""
        return slice(0, slots - length)
