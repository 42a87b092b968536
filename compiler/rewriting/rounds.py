"""Repeats a rewrite until it changes nothing more, or stops after too many rounds and reports that.

Every rewrite that is repeated has a measure that falls with each change, which its docstring names, or it is repeated
here. Both may be so: then the bound is for the day on which the measure is wrong.
"""

import dataclasses
from collections.abc import Callable

from compiler.graph.stages import Refusal

MOST_ROUNDS = 20
"""Rewrites visit nodes in graph order, so that a few rounds do."""


@dataclasses.dataclass(frozen=True)
class Rounds:
    """What came of a rewrite that was repeated.

    Attributes:
        changes: in all rounds.
        refused: why it was given up; empty where the last round changed nothing.
    """

    changes: int
    refused: tuple[Refusal, ...] = ()


def until_settled(change: Callable[[], int], most: int = MOST_ROUNDS) -> Rounds:
    """Repeat a rewrite until it changes nothing, at most `most` times.

    Args:
        change: runs one round and returns its number of changes; the graph is correct after every round.
        most: greatest number of rounds.
    """
    count = 0
    for _ in range(most):
        last = change()
        if not last:
            return Rounds(count)
        count += last
    reason = (
        f"given up after {most} rounds, of which the last changed {last} places: its rules may undo each other; what "
        "it has written says the same as before"
    )
    return Rounds(count, (Refusal(reason),))
