"""Maps each axis of the padded program to the axis of the unpadded one: rows, segments, or axes merged from both.

A size such as `(time - 1)//2 + 1` is an expression over axis names. In the padded program an axis name stands for the
number of slots, in the unpadded one for the true length of a row: the same expression gives both sizes.
"""

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any, TypeAlias

import sympy

from compiler.graph.model import Dim


class Side(enum.Enum):
    """Where the valid entries of a segment lie."""

    LEFT = "left"
    RIGHT = "right"


@dataclasses.dataclass(frozen=True)
class Segment:
    """A stretch of an axis: of `size` slots, as many are valid as the same expression gives for the true lengths.

    Attributes:
        size: an integer (then every slot is valid) or an expression over axis names.
        side: whether the valid entries come first or last.
    """

    size: Dim
    side: Side = Side.LEFT

    @property
    def is_full(self) -> bool:
        """Whether every slot is valid for all lengths."""
        return not symbols_of(self.size)

    def __str__(self) -> str:
        return f"[{self.size}]" if self.is_full else f"[{self.size}, {self.side.value}]"


@dataclasses.dataclass(frozen=True)
class Frames:
    """Padded segments in logical order. Full neighbours are merged."""

    segments: tuple[Segment, ...]

    @property
    def size(self) -> Dim:
        """Return the total of the segments: slots in the padded program, entries in the unpadded one."""
        return total(segment.size for segment in self.segments)

    @property
    def is_suffix_padded(self) -> bool:
        """Whether entry i of the unpadded axis is slot i: only the last segment is padded, on its right."""
        return all(each.is_full for each in self.segments[:-1]) and self.segments[-1].side is Side.LEFT

    @property
    def is_prefix_padded(self) -> bool:
        """Whether the last slots are the last entries: only the first segment is padded, on its left."""
        return all(each.is_full for each in self.segments[1:]) and self.segments[0].side is Side.RIGHT

    def __str__(self) -> str:
        return " ++ ".join(map(str, self.segments))


@dataclasses.dataclass(frozen=True)
class Rows:
    """The batch: one entry per row, and nothing of another row in it."""

    size: Dim

    def __str__(self) -> str:
        return f"rows({self.size})"


@dataclasses.dataclass(frozen=True)
class Plain:
    """An untracked axis, inside a merged one."""

    size: Dim

    def __str__(self) -> str:
        return str(self.size)


Factor: TypeAlias = Rows | Frames | Plain

Axis: TypeAlias = tuple[Factor, ...]
"""One axis of a value: its factors from outer to inner. One factor as a rule; several after a Reshape merged axes."""


def suffix(size: Dim) -> Axis:
    """Return the layout of an axis whose valid entries come first."""
    return (Frames((Segment(size),)),)


def frames_of(axis: Axis) -> Frames | None:
    """Return the frames of an axis that is padded and not merged with others; None for other axes."""
    return axis[0] if len(axis) == 1 and isinstance(axis[0], Frames) else None


def is_padded(axis: Axis) -> bool:
    """Whether an axis has a padded factor."""
    return any(isinstance(factor, Frames) for factor in axis)


def is_without_gap(frames: Frames) -> bool:
    """Whether the valid entries of cached frames and of a chunk are adjacent, with padding at both ends.

    Two segments at most: where a middle one were empty, its slots would be a gap.
    """
    return len(frames.segments) == 2 and frames.segments[0].side is Side.RIGHT and frames.segments[1].side is Side.LEFT


def has_rows(axis: Axis) -> bool:
    """Whether an axis holds the batch."""
    return any(isinstance(factor, Rows) for factor in axis)


def size_of(axis: Axis) -> Dim:
    """Return the number of slots of an axis."""
    product: Dim = 1
    for factor in axis:
        product = product * factor.size
    return product


def symbols_of(size: Dim) -> set[Any]:
    """Return the axis names that an expression mentions, as SymPy symbols."""
    return set() if isinstance(size, int) else set(size.free_symbols)


def total(sizes: Iterable[Dim]) -> Dim:
    """Return the sum of sizes."""
    result: Dim = 0
    for size in sizes:
        result = result + size
    return result if isinstance(result, int) else _integer(result)


def _integer(size: sympy.Expr) -> Dim:
    return int(size) if size.is_Integer else size


def joined(parts: Iterable[Segment]) -> Axis:
    """Return segments in a row as one axis, in normal form: neighbours without a gap between valid entries merge.

    Full ++ full is full; right-aligned ++ full is right-aligned; full ++ left-aligned is left-aligned. Right-aligned ++
    left-aligned has no gap either, and the border between the two may be drawn at any fixed distance: see `_centered`.
    """
    merged: list[Segment] = []
    for part in parts:
        if part.size == 0:
            continue
        last = merged[-1] if merged else None
        if last is not None and part.is_full and (last.is_full or last.side is Side.RIGHT):
            merged[-1] = Segment(total((last.size, part.size)), last.side)
        elif last is not None and last.is_full and part.side is Side.LEFT:
            merged[-1] = Segment(total((last.size, part.size)), Side.LEFT)
        elif last is not None and not last.is_full and last.side is Side.RIGHT and part.side is Side.LEFT:
            merged[-1:] = _centered(last.size, part.size)
        else:
            merged.append(part)
    return (Frames(tuple(merged or (Segment(0),))),)


def _centered(before: Dim, after: Dim) -> tuple[Segment, Segment]:
    """Return a right-aligned and a left-aligned segment with their border in normal form.

    Their valid entries are adjacent, so that (before + c) and (after - c) slots are the same positions. Sizes that grow
    alike are made equal, as in [T, right] ++ [T - 1, left]; else the first is 0 at length 0.
    """
    growth = after - before
    if isinstance(growth, int) or growth.is_Integer:
        shift: Dim = -(-int(growth) // 2)
    else:
        shift = -sympy.sympify(before).subs(dict.fromkeys(symbols_of(before), 0))
    return Segment(total((before, shift)), Side.RIGHT), Segment(total((after, -shift)), Side.LEFT)
