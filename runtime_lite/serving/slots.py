"""Allots slots for the states of streams, with generation numbers, so that nothing stale writes or frees one.

Whoever holds a `Hold` of an older generation is refused: a run that ends after its stream did commits nothing, and of a
cancel, an idle expiry and an end at the same instant one frees the slot. A slot is filled with initial states when it
is taken and emptied when it is freed; what is let go of leaves the block that it shared. Used under the server's lock.
"""

from typing import NamedTuple

from runtime_lite.calls.blocks import leave
from runtime_lite.calls.state import StreamState


class Hold(NamedTuple):
    """The right to one slot, until it is freed.

    Attributes:
        slot: its number.
        generation: how often it had been taken, this time included.
    """

    slot: int
    generation: int


class Slots:
    """The slots of one runtime.

    Args:
        most: how many streams there may be at once.
    """

    def __init__(self, most: int) -> None:
        """Start with all slots free; a slot that was never needed takes no memory."""
        self._most = most
        self._free: list[int] = []
        self._generations: list[int] = []
        self._states: list[StreamState | None] = []

    def take(self, state: StreamState) -> Hold | None:
        """Return the right to a slot that holds a state; None when all are taken."""
        if not self._free:
            if len(self._states) == self._most:
                return None
            self._free.append(len(self._states))
            self._generations.append(0)
            self._states.append(None)
        index = self._free.pop()
        self._generations[index] += 1
        self._states[index] = state
        return Hold(index, self._generations[index])

    def state(self, hold: Hold) -> StreamState | None:
        """What a slot holds; None for a right that has ended."""
        return self._states[hold.slot] if self._generations[hold.slot] == hold.generation else None

    def commit(self, hold: Hold, state: StreamState) -> bool:
        """Replace what a slot holds; whether the right was still good."""
        old = self.state(hold)
        if old is None:
            leave([state])
            return False
        self._states[hold.slot] = state
        leave([old])
        return True

    def free(self, hold: Hold) -> bool:
        """Give a slot back; whether the right was still good."""
        old = self.state(hold)
        if old is None:
            return False
        self._states[hold.slot] = None
        leave([old])
        self._free.append(hold.slot)
        return True

    @property
    def taken(self) -> int:
        """How many slots are in use."""
        return len(self._states) - len(self._free)
