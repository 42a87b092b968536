"""Defines what every kind of state answers: its words in a manifest, what a call gives for it, where its frames are.

Frames lie in slots. A kind knows arithmetic alone, no graph and no arrays of frames: whoever holds arrays asks it.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Move: TypeAlias = tuple[slice, slice]
"""Slots that are written, and the frames of a call that go there."""

Lengths: TypeAlias = NDArray[Any]


class StateKind(Protocol):
    """One kind of state; the defaults here are those of most kinds.

    Attributes:
        name: as messages write it, in the plural.
        side: where valid frames lie, as a manifest writes it; empty for states without frames.
        update: how the next state comes about, as a manifest writes it; empty for states without frames.
        is_given_whole: whether a call gives the whole next state, which takes the place of the one before; otherwise it
            gives its new frames alone, and the runtime writes them.
        needs_whole: whether no frame may make room for another, so that a stream ends when its slots are full.
    """

    name: ClassVar[str]
    side: ClassVar[str] = ""
    update: ClassVar[str] = ""
    is_given_whole: ClassVar[bool] = True
    needs_whole: ClassVar[bool] = False

    def most(self, slots: int) -> int:
        """The largest length that a stream counts."""
        return slots

    def valid(self, slots: int, lengths: Lengths) -> Lengths:
        """The valid frames of rows of some lengths, which a graph is fed."""
        return lengths

    def after(self, slots: int, lengths: Lengths, added: Lengths | int) -> Lengths:
        """The lengths of rows after a call that added so many frames."""
        grown: Lengths = np.minimum(lengths + added, slots)
        return grown

    def oldest(self, slots: int, length: int) -> int:
        """The slot of the oldest frame of a row, behind which the others lie; behind the last slot comes the first."""
        return 0

    def unseen(self, slots: int, length: int) -> slice:
        """The slots of a row with so many valid frames that no call reads, whatever they hold."""
        return slice(0, 0)

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """Where the frames that a call adds to a row of some length are written; nothing of what is given whole.

        Args:
            slots: of the cache.
            length: of the row before the call.
            added: new frames, the first of what the call gives.
        """
        return ()
