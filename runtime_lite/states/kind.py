"""Defines the interface of a kind of state: its words in a manifest, what a call returns for it, and its layout.

Frames lie in slots. A kind computes lengths and slot numbers only; it knows neither graphs nor arrays of frames.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Move: TypeAlias = tuple[slice, slice]
"""Slots to write, and the frames of a call to write there."""

Lengths: TypeAlias = NDArray[Any]


class StateKind(Protocol):
    """The interface of one kind of state; the default methods fit most kinds.

    Attributes:
        name: name of the kind in messages, in the plural.
        side: the manifest's word for the side of the cache where valid frames lie; empty for states without frames.
        update: the manifest's word for how the next state is made; empty for states without frames.
        is_given_whole: whether a call returns the whole next state, which replaces the one before; otherwise it returns
            its new frames alone, and the runtime writes them into the cache.
        needs_whole: whether no frame may be overwritten, so that a stream ends when all slots are full.
    """

    name: ClassVar[str]
    side: ClassVar[str] = ""
    update: ClassVar[str] = ""
    is_given_whole: ClassVar[bool] = True
    needs_whole: ClassVar[bool] = False

    def most(self, slots: int) -> int:
        """Return the largest length that a row can have."""
        return slots

    def valid(self, slots: int, lengths: Lengths) -> Lengths:
        """Return the numbers of valid frames of rows of some lengths; graphs get these as inputs."""
        return lengths

    def after(self, slots: int, lengths: Lengths, added: Lengths | int) -> Lengths:
        """Return the lengths of rows after a call that added `added` frames to each."""
        grown: Lengths = np.minimum(lengths + added, slots)
        return grown

    def oldest(self, slots: int, length: int) -> int:
        """Return the slot of a row's oldest frame; the others follow it, from the last slot on to the first."""
        return 0

    def unseen(self, slots: int, length: int) -> slice:
        """Return the slots of a row with `length` valid frames that no call reads, whatever values they hold."""
        return slice(0, 0)

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """Return where to write the frames that a call adds to a row; nothing if calls return the whole state.

        Args:
            slots: number of slots of the cache.
            length: length of the row before the call.
            added: number of new frames; they are the first frames of the call's output.
        """
        return ()
