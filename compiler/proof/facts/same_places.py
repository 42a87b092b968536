"""Checks that data movement puts each valid entry of a padded row at its place in the unpadded row, at every length.

An index map is evaluated twice: for one row of `frames` frames, and for rows of `frames + more` slots. At every valid
position of the result, the entry of the row alone is compared with the padded program's entry at that position's slot.
"""

from collections.abc import Mapping, Sequence

import sympy

from compiler.graph.model import Dim
from compiler.proof.facts.facts import Fact
from compiler.proof.facts.index_map import (
    FRAMES,
    ROWS,
    Box,
    Guards,
    IndexMap,
    Sizes,
    Source,
    is_impossible,
    never_negative,
)
from compiler.proof.facts.layout import Axis, Frames, Rows, Side

MORE = sympy.Symbol("more", integer=True, nonnegative=True)
ROW = sympy.Symbol("row", integer=True, nonnegative=True)


def holds(moved: IndexMap, given: Fact, axes: Mapping[int, Axis], known: Sizes) -> bool:
    """Whether every valid entry of the result equals that of the unpadded chain.

    Args:
        moved: the source of every entry of the result.
        given: the fact of the operand.
        axes: the claimed layout of the result.
        known: the terms of sizes as functions of `FRAMES` and `ROWS`.
    """
    try:
        return _Comparison(moved, given, axes, known).holds()
    except ValueError:
        return False


class _Comparison:
    def __init__(self, moved: IndexMap, given: Fact, axes: Mapping[int, Axis], known: Sizes) -> None:
        self.moved, self.given, self.known = moved, given, known
        alone = {ROWS: 1}
        self.indices = [index for index, _ in moved.box]
        self.box: Box = (
            *((index, sympy.expand(size.subs(alone))) for index, size in moved.box),
            (ROW, ROWS),
        )
        self.slots = {index: self._slot(axes.get(at), index, size) for at, (index, size) in enumerate(moved.box)}

    def holds(self) -> bool:
        for own in self.moved.sources:
            for padded in self.moved.sources:
                mine = self._alone(own.guards)
                theirs = tuple(self._together(each) for each in padded.guards)
                if not is_impossible((*mine, *theirs), self.box) and not self._agree(own, padded, (*mine, *theirs)):
                    return False
        return True

    def _alone(self, numbers: Sequence[sympy.Expr]) -> tuple[sympy.Expr, ...]:
        """Return numbers in the program of one row."""
        return tuple(sympy.expand(each.subs({ROWS: 1})) for each in numbers)

    def _together(self, number: sympy.Expr) -> sympy.Expr:
        """Return a number in the padded program, at the slot of an entry."""
        return sympy.expand(number.subs({FRAMES: FRAMES + MORE}).subs(self.slots, simultaneous=True))

    def _agree(self, own: Source, padded: Source, guards: Guards) -> bool:
        """Whether the unpadded and the padded program have the same entry at an index."""
        if padded.index is None:
            return own.index is None and own.added == padded.added
        found = [self._together(at) for at in padded.index]
        if own.index is None:
            return any(self._is_padding(at, place, own.added, guards) for at, place in enumerate(found))
        wanted = [self._slot(self.given.axis(at), place, None) for at, place in enumerate(self._alone(own.index))]
        return all(sympy.expand(a - b) == 0 for a, b in zip(found, wanted, strict=True))

    def _is_padding(self, at: int, place: sympy.Expr, added: float, guards: Guards) -> bool:
        """Whether a slot of the operand lies in padding that holds a number, behind the valid entries."""
        frames = self.given.frames(at)
        if frames is None or at not in self.given.padded:
            return False
        content = self.given.padding(at)
        if not content.is_constant or content.low != added or not frames.is_suffix_padded:
            return False
        return never_negative(sympy.expand(place - self._size(frames.size)), guards, self.box)

    def _size(self, dim: Dim) -> sympy.Expr:
        return sympy.expand(sympy.sympify(dim).subs(self.known))

    def _slot(self, axis: Axis | None, index: sympy.Expr, size: sympy.Expr | None) -> sympy.Expr:
        """Return the slot of an entry of an axis.

        Raises:
            ValueError: the axis has a layout that is not supported.
        """
        if axis is None:
            if size is not None and size.free_symbols:
                raise ValueError("an axis without a layout grows")
            return index
        if len(axis) == 1 and isinstance(axis[0], Frames):
            shift = _shift(axis[0], self)
            return sympy.expand(index + shift)
        if isinstance(axis[0], Rows) and not any(isinstance(factor, Frames | Rows) for factor in axis[1:]):
            inner = sympy.Integer(1) * sympy.prod([self._size(factor.size) for factor in axis[1:]])
            if inner.free_symbols:
                raise ValueError("rows of growing size")
            return sympy.expand(index + ROW * inner)
        raise ValueError("axes merged otherwise")


def _shift(frames: Frames, sizes: "_Comparison") -> sympy.Expr:
    """Return how many slots an entry lies behind its position: the size of the padding in front."""
    sides = [segment.side for segment in frames.segments if not segment.is_full]
    if len(frames.segments) == 1 and frames.is_suffix_padded:
        return sympy.Integer(0)
    if sides not in ([Side.RIGHT], [Side.RIGHT, Side.LEFT]) or frames.segments[0].is_full or len(frames.segments) > 2:
        raise ValueError(f"{frames} has padding in between")
    size = sizes._size(frames.segments[0].size)
    return sympy.expand(size.subs({FRAMES: FRAMES + MORE}) - size)
