"""States of a fixed extent, such as the context of a convolution: each call gives the next one whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import Move


@dataclass(frozen=True)
class Fixed:
    """A state without frames. See `StateKind`."""

    name: ClassVar[str] = "states without frames"
    side: ClassVar[str] = ""
    update: ClassVar[str] = ""
    is_given_whole: ClassVar[bool] = True
    needs_whole: ClassVar[bool] = False

    def unseen(self, slots: int, length: int) -> slice:
        """All of it is read."""
        return slice(0, 0)

    def moves(self, slots: int, length: int, added: int) -> Sequence[Move]:
        """All of it is written."""
        return ((slice(None), slice(None)),)
