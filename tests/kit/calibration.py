"""Calibration by hand: streams and a task distance that tests choose."""

import dataclasses
from collections.abc import Callable, Sequence

from compiler.graph.stages import Feed, Lowered


@dataclasses.dataclass(frozen=True)
class FixedCalibration:
    """The same streams and distance whatever is asked.

    Attributes:
        streams: feeds of one row each.
        distance: of a graph; None stands for a recipe without a task gate.
    """

    streams: Sequence[Sequence[Feed]]
    distance: Callable[[Lowered], float] | None = None

    def task_distance(self, lowered: Lowered) -> float | None:
        return None if self.distance is None else self.distance(lowered)


def with_streams(lowered: Lowered, *streams: Sequence[Feed]) -> Lowered:
    """A graph with calibration streams."""
    return dataclasses.replace(lowered, calibration=FixedCalibration(streams))
