"""Caches of the newest frames, the newest in the last slot: each call gives the whole next cache."""

from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import StateKind


@dataclass(frozen=True)
class Window(StateKind):
    """A cache that is replaced."""

    name: ClassVar[str] = "right-aligned caches that are replaced"
    side: ClassVar[str] = "right"
    update: ClassVar[str] = "replace"

    def oldest(self, slots: int, length: int) -> int:
        """Free slots lie in front."""
        return slots - length

    def unseen(self, slots: int, length: int) -> slice:
        """Free slots, which every call cleans."""
        return slice(0, slots - length)
