"""Defines the records of a value's time axes and of the frames that each of its entries may read."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import sympy

from compiler.graph.sizes.expressions import Dim

BOTH_WAYS = " and the first "
"""Stands in a reach, as it is written, in front of the number of frames that all read each other."""


@dataclasses.dataclass(frozen=True)
class Reach:
    """The frames that the entry at place t may read: t + low .. max(t + high, first - 1).

    Attributes:
        low: in frames; -inf for all earlier ones.
        high: in frames; above 0 it looks ahead.
        first: frames at the start that may all read each other, as under a mask of a prefix.
        inside: of the frames that are looked ahead, those that lie in a frame's own chunk wherever it lies there: no
            frame reads further than `high - inside` behind the last one of its chunk.
    """

    low: float
    high: float
    first: float = 0
    inside: float = 0

    @property
    def beyond(self) -> float:
        """The number of frames read beyond the end of a frame's own chunk."""
        return self.high - self.inside

    @property
    def is_causal(self) -> bool:
        """Whether no frame beyond a frame's own chunk is read, except among the first frames."""
        return self.beyond <= 0

    def behind(self, other: "Reach", chunk: int = 1) -> "Reach":
        """Return the reach of this read followed by another: for every frame this one reads, all that the other reads.

        A frame some chunks later reads as far beyond the end of its own chunk.

        Args:
            other: the reach of the operand.
            chunk: number of frames in a chunk.
        """
        if self == NOWHERE or other == NOWHERE:
            return NOWHERE
        first = max(self.first + max(other.high, 0) if self.first else 0, other.first)
        low, high = self.low + other.low, self.high + other.high
        if math.isinf(high):
            return Reach(low, high, first)
        chunks = chunk * math.ceil(max(self.beyond, 0) / chunk)
        beyond = min(self.beyond + other.high, chunks + other.beyond)
        high = min(high, beyond + chunk - 1)
        return Reach(low, high, first, high - beyond)

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]" + (f"{BOTH_WAYS}{self.first:g}" if self.first else "")


HERE = Reach(0, 0)
NOWHERE = Reach(math.inf, -math.inf)
EVERYWHERE = Reach(-math.inf, math.inf)


def hull(reaches: Iterable[Reach]) -> Reach:
    """Return the smallest reach that contains several."""
    found = [each for each in reaches if each != NOWHERE]
    if not found:
        return NOWHERE
    low, high, first = min(r.low for r in found), max(r.high for r in found), max(r.first for r in found)
    return Reach(low, high, first, 0 if math.isinf(high) else high - max(r.beyond for r in found))


@dataclasses.dataclass(frozen=True)
class Along:
    """A time axis.

    Attributes:
        factors: sizes of which its places are counted, the outermost first: the number of frames alone, or the batch
            and it where a Reshape has merged them.
        reach: the frames that a frame reads, relative to its place here.
        before: entries in front of the frames, which read no frame: a prefix that was joined to them.
    """

    factors: tuple[Dim, ...]
    reach: Reach
    before: Dim = 0

    @property
    def is_alone(self) -> bool:
        """Whether frames and their prefix share their axis with nothing else."""
        return len(self.factors) == 1

    @property
    def rate(self) -> int | None:
        """Return the entries of each frame on its axis; None where frames share it with rows, or lie behind a prefix.

        A frame of rate 4 has the entries 4 * t .. 4 * t + 3.
        """
        if self.before != 0:
            return None
        entries = [size for size in self.factors[1:] if isinstance(size, int)]
        return math.prod(entries) if len(entries) == len(self.factors) - 1 else None


def at_rate(size: Dim, frames: Dim) -> tuple[Dim, ...] | None:
    """Return the factors of an axis that holds equally many entries of every frame; None where it does not.

    Args:
        size: the size of the axis.
        frames: the number of frames.
    """
    rate = sympy.cancel(sympy.sympify(size) / frames)
    if not (rate.is_Integer and rate > 0):
        return None
    return (frames,) if rate == 1 else (frames, int(rate))


def joined_factors(factors: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the factors of an axis with neighbouring numbers multiplied: entries of entries are entries."""
    joined: list[Dim] = []
    for size in factors:
        if joined and isinstance(size, int) and isinstance(joined[-1], int):
            joined[-1] *= size
        else:
            joined.append(size)
    return tuple(joined)


Kind: TypeAlias = Literal["zero", "low"]

KINDS: tuple[Kind, ...] = ("zero", "low")


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
        is_closed: whether rows in front of the frames hold nothing inside in columns of frames.
    """

    kind: Kind
    row: int
    column: int
    support: npt.NDArray[np.bool_]
    level: float = 0.0
    is_closed: bool = True


@dataclasses.dataclass(frozen=True)
class Dependence:
    """How one value depends on time axes and on data.

    Attributes:
        along: time axes by position.
        is_data: whether it depends on what callers feed; else on sizes and constants alone.
        whole: why every entry depends on the length of the sequence or on all of its frames, with the node; or None.
    """

    along: Mapping[int, Along] = dataclasses.field(default_factory=dict)
    is_data: bool = False
    whole: str | None = None


CONSTANT = Dependence()


def reach_of(support: npt.NDArray[np.bool_], chunk: int = 1) -> Reach:
    """Return which columns, relative to its own position, a row reads.

    Look-ahead within the first frames alone, as under a prefix mask, is distinguished from look-ahead everywhere.

    Args:
        support: bool [rows, columns] of one size.
        chunk: frames of a chunk; the first one begins with the first row.
    """
    rows, columns = np.nonzero(support)
    if not rows.size:
        return NOWHERE
    ahead = columns - rows
    beyond = columns - (rows // chunk * chunk + chunk - 1)
    low, first = float(ahead.min()), 0
    if beyond.max() > 0:
        first = int(columns[beyond > 0].max()) + 1
        first = first if 2 * first <= len(support) else 0
    behind = columns >= first
    high = max(float(ahead[behind].max(initial=0)), 0.0) if first else float(ahead.max())
    most = max(float(beyond[behind].max(initial=0)), 0.0) if first else float(beyond.max())
    return Reach(low, high, first, high - min(most, high))


def frames_kept(support: npt.NDArray[np.bool_], chunk: int = 1) -> int:
    """Return how many frames in front of a call its rows, and those of later calls, read at most.

    Args:
        support: bool [rows, columns] of one size.
        chunk: frames of a chunk; calls begin with one.
    """
    size = len(support)
    first = np.where(support.any(axis=1), support.argmax(axis=1), size)
    earliest = np.minimum.accumulate(first[::-1])[::-1]
    starts = np.arange(0, size, chunk)
    return max(int((starts - earliest[starts]).max(initial=0)), 0)


def chunk_of(supports: Iterable[npt.NDArray[np.bool_]]) -> int | None:
    """Return the fewest frames per chunk such that no row reads beyond its own chunk; None where there is none.

    Args:
        supports: bool [longest, longest], rows and columns.
    """
    masks = list(supports)
    for chunk in range(2, min((len(each) for each in masks), default=0) // 2 + 1):
        found = [reach_of(each, chunk) for each in masks]
        if all(reach.is_causal and not reach.first for reach in found):
            return chunk
    return None
