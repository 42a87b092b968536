"""Caches in which every frame has a slot of its own, the oldest in the first: a call gives its new frames alone.

A step then moves its frames and not the whole cache. Free slots hold the initial value: the graph may count on it, so
that it need not clean a cache that it reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import Move, StateKind


@dataclass(frozen=True)
class Appended(StateKind):
    """A cache to which calls append."""

    name: ClassVar[str] = "left-aligned caches to which calls append"
    side: ClassVar[str] = "left"
    update: ClassVar[str] = "append"
    is_given_whole: ClassVar[bool] = False
    needs_whole: ClassVar[bool] = True

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """New frames lie behind the others."""
        return ((slice(length, length + added), slice(added)),)
