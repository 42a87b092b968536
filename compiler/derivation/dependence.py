"""What is known of one value of a stateless graph: its time axes, and the frames that an entry may read."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.sizes.expressions import Dim


@dataclasses.dataclass(frozen=True)
class Reach:
    """The frames that the entry at place t may read: t + low .. max(t + high, first - 1).

    Attributes:
        low: in frames; -inf for all earlier ones.
        high: in frames; above 0 it looks ahead.
        first: frames at the start that may all read each other, as under a mask of a prefix.
    """

    low: float
    high: float
    first: float = 0

    @property
    def is_causal(self) -> bool:
        """Whether no later frame is read, but within the first ones."""
        return self.high <= 0

    def behind(self, other: "Reach") -> "Reach":
        """What is read where this lies behind another: of every frame that this reads, all that the other reads."""
        if self == NOWHERE or other == NOWHERE:
            return NOWHERE
        first = max(self.first + max(other.high, 0) if self.first else 0, other.first)
        return Reach(self.low + other.low, self.high + other.high, first)

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]" + (f" and the first {self.first:g}" if self.first else "")


HERE = Reach(0, 0)
NOWHERE = Reach(math.inf, -math.inf)
EVERYWHERE = Reach(-math.inf, math.inf)


def hull(reaches: Iterable[Reach]) -> Reach:
    """What is read where several are read."""
    found = [each for each in reaches if each != NOWHERE]
    if not found:
        return NOWHERE
    return Reach(min(r.low for r in found), max(r.high for r in found), max(r.first for r in found))


@dataclasses.dataclass(frozen=True)
class Along:
    """A time axis.

    Attributes:
        factors: sizes of which its places are counted, the outermost first: the number of frames alone, or the batch
            and it where a Reshape has merged them.
        reach: what a frame reads, by its place here.
        before: entries in front of the frames, which read no frame: a prefix that was joined to them.
    """

    factors: tuple[Dim, ...]
    reach: Reach
    before: Dim = 0

    @property
    def is_alone(self) -> bool:
        """Whether frames, and what lies in front of them, share the axis with nothing."""
        return len(self.factors) == 1


Kind: TypeAlias = Literal["zero", "low"]


@dataclasses.dataclass(frozen=True, eq=False)
class Outside:
    """What two time axes hold outside of a mask's support.

    Attributes:
        kind: exactly zero; or so low a number that a softmax gives exactly zero.
        row: axis of the value along which the support has its rows.
        column: axis along which it has its columns.
        support: bool [longest, longest], of the frames of the longest sequence; that of a shorter one is its upper
            left part.
        level: of `low`, the largest number there.
        made_by: names of the nodes that have masked.
        is_closed: whether rows in front of the frames hold nothing inside in columns of frames.
    """

    kind: Kind
    row: int
    column: int
    support: npt.NDArray[np.bool_]
    level: float = 0.0
    made_by: tuple[str, ...] = ()
    is_closed: bool = True


@dataclasses.dataclass(frozen=True)
class Dependence:
    """What is known of one value.

    Attributes:
        along: time axes by position.
        is_data: whether it depends on what callers feed; else on sizes and constants alone.
        whole: why every entry depends on the length of the sequence or on all of its frames, with the node; or None.
        outside: what a mask has left, or None.
    """

    along: Mapping[int, Along] = dataclasses.field(default_factory=dict)
    is_data: bool = False
    whole: str | None = None
    outside: Outside | None = None


CONSTANT = Dependence()


def reach_of(support: npt.NDArray[np.bool_]) -> Reach:
    """What a row reads of the columns.

    Look-ahead within the first frames alone, as under a mask of a prefix, is told apart from look-ahead everywhere.

    Args:
        support: bool [rows, columns] of one size.
    """
    rows, columns = np.nonzero(support)
    if not rows.size:
        return NOWHERE
    ahead = columns - rows
    low, high = float(ahead.min()), float(ahead.max())
    if high > 0:
        first = int(columns[ahead > 0].max()) + 1
        if 2 * first <= len(support):
            return Reach(low, 0, first)
    return Reach(low, high)
