"""Defines states of a fixed shape, such as the context of a convolution, which each call returns whole."""

from dataclasses import dataclass
from typing import ClassVar

from runtime_lite.states.kind import StateKind


@dataclass(frozen=True)
class Fixed(StateKind):
    """A state that does not consist of frames."""

    name: ClassVar[str] = "states without frames"
