"""Caches of the newest frames, the newest in the last slot: each call gives the whole next cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import Move


@dataclass(frozen=True)
class Window:
    """A cache that is replaced. See `StateKind`."""

    name: ClassVar[str] = "right-aligned caches that are replaced"
    side: ClassVar[str] = "right"
    update: ClassVar[str] = "replace"
    is_given_whole: ClassVar[bool] = True
    needs_whole: ClassVar[bool] = False

    def unseen(self, slots: int, length: int) -> slice:
        """The first slots are free, and every call cleans them."""
        return slice(0, slots - length)

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """All slots are written."""
        return ((slice(None), slice(None)),)
