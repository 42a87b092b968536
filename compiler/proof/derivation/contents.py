"""Bounds the possible values of a tensor by position: a few intervals, and the positions at which each one holds.

    future [time, time]                       hidden above the diagonal
    padding [batch, 1, time]                  hidden or not, everywhere
    Where(future | padding, -1e9, scores)     -1e9 above the diagonal, -1e9 .. 0 below

An axis of frames has as many entries as the longest sequence. One in front of them stands for all of a prefix; where
two prefixes meet, for every place and itself. Every other axis has one entry, which stands for all of its places.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.proof.derivation.spans import LOW, ONE, UNKNOWN, ZERO, Rule, Span, hull

MOST_SPANS = 32
"""Of one value; where there would be more, nothing is known of it."""

Which = npt.NDArray[np.uint8]


@dataclasses.dataclass(frozen=True, eq=False)
class Contents:
    """The possible content of a value.

    Attributes:
        spans: each of them another one.
        which: uint8, of the value's rank: which of the spans lies there.
    """

    spans: tuple[Span, ...]
    which: Which

    def covers(self, axis: int) -> bool:
        """Whether the contents vary along an axis."""
        return int(self.which.shape[axis]) > 1

    def where(self, chosen: Iterable[bool]) -> npt.NDArray[np.bool_]:
        """Return a boolean array that is true where the entry's interval is among the chosen ones."""
        found: npt.NDArray[np.bool_] = np.array(list(chosen))[self.which]
        return found


def uniform(span: Span, rank: int) -> Contents:
    """Return contents whose every entry lies in the same interval."""
    return Contents((span,), np.zeros((1,) * rank, np.uint8))


def combined(rule: Rule, given: Sequence[Contents], rank: int) -> Contents:
    """Return the contents that an entrywise operator computes; axes are aligned from the back.

    Args:
        rule: maps an interval of each operand to that of the result.
        given: contents of the operands.
        rank: rank of the result.
    """
    picks = itertools.product(*(range(len(contents_of.spans)) for contents_of in given))
    spans_made = [
        rule(*(contents_of.spans[code] for contents_of, code in zip(given, pick, strict=True))) for pick in picks
    ]
    if len(spans_made) == 1:
        return uniform(spans_made[0], rank)
    moving = [contents_of for contents_of in given if len(contents_of.spans) > 1]
    codes: npt.NDArray[np.integer] = _with_rank(moving[0].which, rank)
    for contents_moving in moving[1:]:
        codes = codes.astype(np.uint32) * len(contents_moving.spans) + _with_rank(contents_moving.which, rank)
    if len(moving) > 1:
        there = np.zeros(len(spans_made), np.bool_)
        there[np.unique(codes)] = True
        spans_made = [
            span if is_there else spans_made[int(np.argmax(there))]
            for span, is_there in zip(spans_made, there, strict=True)
        ]
    spans = tuple(dict.fromkeys(spans_made))
    if len(spans) == 1 or len(spans) > MOST_SPANS:
        return uniform(spans[0] if len(spans) == 1 else UNKNOWN, rank)
    places = np.array([spans.index(span_made) for span_made in spans_made], np.uint8)
    is_same = len(moving) == 1 and len(spans) == len(spans_made)
    return Contents(spans, codes if is_same else places[codes])  # type: ignore[arg-type]


def _with_rank(which: Which, rank: int) -> Which:
    return which if which.ndim == rank else which.reshape((1,) * (rank - which.ndim) + which.shape)


def moved(given: Contents, axes: Mapping[int, int], rank: int) -> Contents:
    """Return contents whose axes have been moved.

    Args:
        given: contents of the operand.
        axes: for each axis of frames of the result, the operand's axis; other axes are dropped.
        rank: rank of the result.
    """
    if len(given.spans) == 1:
        return uniform(given.spans[0], rank)
    if any(given.covers(axis) and axis not in axes.values() for axis in range(given.which.ndim)):
        return uniform(UNKNOWN, rank)
    order = [axis for _, axis in sorted(axes.items())]
    order += [axis for axis in range(given.which.ndim) if axis not in order]
    sizes = [given.which.shape[axes[axis]] if axis in axes else 1 for axis in range(rank)]
    return Contents(given.spans, given.which.transpose(order).reshape(sizes))


def beginning_behind(given: Contents, axis: int) -> Contents:
    """Drop the prefix entry of an axis from contents."""
    behind = (slice(None),) * axis + (slice(1, None),)
    return dataclasses.replace(given, which=given.which[behind]) if given.covers(axis) else given


def triangle(longest: int, rank: int, diagonal: int, *, upper: bool) -> Contents:
    """Return the contents of a Trilu mask over the last two axes: ones where it keeps entries, zeros elsewhere."""
    ones = np.ones((longest, longest), np.uint8)
    kept = np.triu(ones, diagonal) if upper else np.tril(ones, diagonal)
    return Contents((ZERO, ONE), _with_rank(kept, rank))


# Of arrays

KINDS = 6
"""Negative infinity, what hides besides, 0, 1, other numbers, and no number."""


class Tables:
    """What arrays of one shape hold, one after the other.

    Args:
        longest: frames.
        before: entries in front of them, by axis of frames, is there a prefix or not.
    """

    def __init__(self, longest: int, before: Mapping[int, bool]) -> None:
        self.longest, self.before = longest, before
        self.bits: npt.NDArray[np.uint8] | None = None
        self.bounds = {2: [np.inf, -np.inf], 16: [np.inf, -np.inf]}

    def add(self, array: npt.NDArray[np.generic], prefixes: Mapping[int, int]) -> bool:
        """Merge another array into the table; return False where its axes differ from those known.

        Args:
            array: entries of the value at one assignment of sizes.
            prefixes: number of entries in front of the frames, by axis.
        """
        if array.dtype.kind not in "fiub" or any(
            array.shape[axis] != self.longest + count for axis, count in prefixes.items()
        ):
            return False
        bits = self._bits(array)
        others = tuple(axis for axis in range(array.ndim) if axis not in prefixes)
        if any(array.shape[axis] > 1 for axis in others):
            bits = np.bitwise_or.reduce(bits, axis=others, keepdims=True)
        bits = self._merged(bits, {axis: prefixes[axis] for axis, is_there in self.before.items() if is_there})
        self.bits = bits if self.bits is None else self.bits | bits
        return True

    def _bits(self, array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
        if array.dtype.kind == "b":
            return np.where(array, np.uint8(8), np.uint8(4))
        numbers: npt.NDArray[Any] = array
        bits = np.full(array.shape, 16, np.uint8)
        kinds = ((numbers <= LOW, 2), (numbers == -np.inf, 1), (numbers == 0, 4), (numbers == 1, 8),
                 (np.isnan(numbers), 32))  # fmt: skip
        for there, bit in kinds:
            bits[there] = bit
        for bit, bound in self.bounds.items():
            chosen = numbers[bits == bit]
            if chosen.size:
                bound[:] = min(bound[0], float(chosen.min())), max(bound[1], float(chosen.max()))
        return bits

    def _merged(self, bits: npt.NDArray[np.uint8], prefixes: Mapping[int, int]) -> npt.NDArray[np.uint8]:
        """Merge the entries of a prefix into one entry; of two prefixes, merge the diagonal of their block."""
        if len(prefixes) == 2:
            (row, rows), (column, columns) = prefixes.items()
            block = np.moveaxis(bits, (row, column), (-2, -1))[..., :rows, :columns]
            corner = np.bitwise_or.reduce(block[..., range(min(rows, columns)), range(min(rows, columns))], axis=None)
        for axis, count in prefixes.items():
            front = np.bitwise_or.reduce(bits.take(range(count), axis), axis=axis, keepdims=True)
            bits = np.concatenate([front, bits.take(range(count, bits.shape[axis]), axis)], axis=axis)
        if len(prefixes) == 2:
            bits[tuple(0 if axis in prefixes else slice(None) for axis in range(bits.ndim))] = corner
        return bits

    def contents(self) -> Contents | None:
        """Return the contents that cover all merged arrays; None where none was added."""
        if self.bits is None:
            return None
        least, most = self.bounds[2], self.bounds[16]
        single = {
            1: Span(-np.inf, -np.inf), 2: Span(least[0], least[1]),
            4: ZERO, 8: ONE, 16: Span(most[0], most[1]), 32: UNKNOWN,
        }  # fmt: skip
        codes = np.unique(self.bits)
        of_code = [hull(single[1 << kind] for kind in range(KINDS) if code >> kind & 1) for code in codes.tolist()]
        spans = tuple(dict.fromkeys(of_code))
        if len(spans) == 1:
            return uniform(spans[0], self.bits.ndim)
        if len(spans) > MOST_SPANS:
            return uniform(UNKNOWN, self.bits.ndim)
        places = np.zeros(256, np.uint8)
        places[codes] = [spans.index(code_span) for code_span in of_code]
        return Contents(spans, places[self.bits])
