"""States of a fixed extent, such as the context of a convolution: each call gives the next one whole."""

from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import StateKind


@dataclass(frozen=True)
class Fixed(StateKind):
    """A state without frames."""

    name: ClassVar[str] = "states without frames"
