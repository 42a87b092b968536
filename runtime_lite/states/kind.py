"""What a kind of state says of itself: how a manifest writes it, what a call gives for it, and where frames lie.

Frames lie in slots, and lengths count those of a row. A kind knows arithmetic alone, no graph and no array of frames.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

Move: TypeAlias = tuple[slice, slice]
"""Slots that are written, and the frames of a call that go there."""


class StateKind(Protocol):
    """One kind of state.

    Attributes:
        name: as messages write it, in the plural.
        side: where valid frames lie, as a manifest writes it; empty for states without frames.
        update: how the next state comes about, as a manifest writes it; empty for states without frames.
        is_given_whole: whether a call gives the whole next state, which takes the place of the one before; otherwise it
            gives its new frames alone, and the runtime writes them.
        needs_whole: whether no frame may make room for another, so that a stream ends when its slots are full.
    """

    @property
    def name(self) -> str: ...

    @property
    def side(self) -> str: ...

    @property
    def update(self) -> str: ...

    @property
    def is_given_whole(self) -> bool: ...

    @property
    def needs_whole(self) -> bool: ...

    def unseen(self, slots: int, length: int) -> slice:
        """The slots of a row with so many valid frames that no call reads, whatever they hold."""
        ...

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """Where the frames that a call adds to a row with so many valid ones are written.

        Args:
            slots: of the cache.
            length: valid frames of the row before the call.
            added: new frames, the first of what the call gives.
        """
        ...
