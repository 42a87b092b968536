"""Compares integers and booleans, such as labels and token ids, by the share of entries that are equal.

Such values are classes, between which no distance is meant. Where two classes are nearly tied, rounding decides between
them, and the class numbers do not show how near they were. The ratio of noise to signal is for floats alone.
"""

import dataclasses

import numpy as np

from compiler.graph.stages import Array


def are_classes(array: Array) -> bool:
    """Whether entries are integers or booleans."""
    return array.dtype.kind in "iub"


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How many entries of one tensor are equal, over all that were added.

    Attributes:
        compared: entries.
        differing: those that are not equal; all of an array of another shape.
        first: the first of them, in words; empty where there is none.
        first_step: the step that it is in; None where there is none.
    """

    compared: int = 0
    differing: int = 0
    first: str = ""
    first_step: int | None = None

    @property
    def equal(self) -> float:
        """Return the share of equal entries; 1 for no entries."""
        return 1.0 - self.differing / self.compared if self.compared else 1.0

    def used(self, min_equal: float) -> float:
        """Return the used share of the allowed differences; infinite where none is allowed and there is one."""
        allowed = (1.0 - min_equal) * self.compared
        return self.differing / allowed if allowed else (float("inf") if self.differing else 0.0)

    def holds(self, min_equal: float) -> bool:
        """Whether at least this share is equal."""
        return self.equal >= min_equal

    def plus(self, got: Array, right: Array, step: int) -> "Agreement":
        """Return the counts plus the entries of one more array and its right one."""
        if got.shape != right.shape:
            count, first = max(right.size, 1), f"shape {list(got.shape)}, not {list(right.shape)}"
            differing = count
        else:
            wrong = np.asarray(got != right)
            count, differing = right.size, int(np.count_nonzero(wrong))
            where = tuple(map(int, np.argwhere(wrong)[0])) if differing else ()
            first = f"{got[where]} at {list(where)}, not {right[where]}" if differing else ""
        is_first = bool(differing) and self.first_step is None
        return Agreement(
            self.compared + count,
            self.differing + differing,
            first if is_first else self.first,
            step if is_first else self.first_step,
        )
