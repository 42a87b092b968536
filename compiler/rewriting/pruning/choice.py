"""Chooses how many entries of every inner axis to keep, so that a call takes a share of its time with least error.

Greedy: each step removes entries of the axis and in the number that add the least error per time saved. The
errors of several axes are assumed to add up, as they do while they are small; the error of the pruned graph is
measured, not added.
"""

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Option:
    """A number of entries of one axis.

    Attributes:
        entries: that stay.
        seconds: of one call that it saves.
        loss: noise that it adds to the results, as a share of their power.
    """

    entries: int
    seconds: float
    loss: float


@dataclasses.dataclass(frozen=True)
class Point:
    """A choice on the way to smaller ones.

    Attributes:
        time: of a call, as a share of that of the whole graph.
        loss: of all axes together.
    """

    time: float
    loss: float


@dataclasses.dataclass(frozen=True)
class Choice:
    """What stays of every axis that loses entries.

    Attributes:
        options: by axis.
        points: the way there, each step one more; the last is the choice.
    """

    options: Mapping[str, Option]
    points: tuple[Point, ...]


def choose(offered: Mapping[str, Sequence[Option]], seconds: float, time: float) -> Choice:
    """Return the first choice on the way that takes at most a share of the time; else the smallest that there is.

    Args:
        offered: by axis, the largest first: each saves more than those in front of it.
        seconds: of one call of the whole graph.
        time: the share.
    """
    chosen: dict[str, Option] = {}
    points = [Point(1.0, 0.0)]
    while points[-1].time > time:
        steps = [
            ((option.loss - held.loss) / (option.seconds - held.seconds), axis, option)
            for axis, options in offered.items()
            for held in [chosen.get(axis, _ALL)]
            for option in options
            if option.seconds > held.seconds
        ]
        if not steps:
            break
        _, axis, option = min(steps, key=lambda step: step[:2])
        chosen[axis] = option
        saved, lost = (sum(getattr(each, part) for each in chosen.values()) for part in ("seconds", "loss"))
        points.append(Point(1.0 - saved / seconds, lost))
    return Choice(chosen, tuple(points))


_ALL = Option(0, 0.0, 0.0)
"""All entries: nothing is saved and nothing lost."""
