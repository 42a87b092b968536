"""Masks by distance in random spellings: a frame sees itself and a constant number of frames before it.

    rows - columns < 4                 Less(Sub(rows, columns), 4); Greater(Mul(Sub(columns, rows), 2), -8); Trilu ..
    0 <= rows - columns < 4            And, Xor, Not of Or, a product, a difference or a selection of both bounds; Abs

Spoiled, a mask shows a later frame, shows what data say, hides too little, or shows other frames in sequences longer
than the longest that is asked about.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import onnx_ir as ir

NEAR_SPOILERS = ("ahead", "opened", "soft", "endless")
"""A frame sees the next one; what data say; hidden ones with a small weight; or no number, of 0 times infinity."""

FAR_MASK_SPOILERS = ("far", "far_too", "wrapped", "again", "late", "far_ahead", "parted", "turned", "by_place")
"""What changes only in longer sequences: a frame sees again what lies far behind, by distance (twice as often), by one
that wraps round in a small type, or by its remainder; all, from some place on; what lies far ahead; what a whole
quotient shows; what an absolute value shows; or scores are moved by the place of the row."""

Found = TypeVar("Found")


class Ops(Protocol):
    """Writes nodes of one graph, over places of frames."""

    random: np.random.Generator
    length: ir.Value
    places: ir.Value

    def op(self, op_type: str, *operands: ir.Value | None, **attributes: int | str | Sequence[int]) -> ir.Value:
        """One node, and its result."""
        ...

    def number(self, value: int) -> ir.Value:
        """An int64 constant."""
        ...

    def real(self, value: float) -> ir.Value:
        """A float32 constant."""
        ...

    def ints(self, *values: int) -> ir.Value:
        """An int64 constant of one axis."""
        ...

    def floats(self, value: ir.Value) -> ir.Value:
        """A value in float32."""
        ...


class SpelledMasks:
    """Writes masks, bool [time, time], true where a frame may be seen.

    Args:
        ops: of the graph.
        longest: frames of the longest sequence that is asked about.
    """

    def __init__(self, ops: Ops, longest: int) -> None:
        self.ops, self.longest = ops, longest

    def band(self, width: int, spoiler: str, data: Callable[[], ir.Value]) -> ir.Value:
        """The mask of a frame and those before it, `width` of them together.

        Args:
            width: from 1 on.
            spoiler: what it shows besides, or nothing.
            data: truths that data decide, [.., time] or [.., time, 1].
        """
        op, ops = self.ops.op, self.ops
        seen = self.between(-1 if spoiler == "ahead" else 0, width)
        later, far = self.longest + self._drawn(0, 5), self.longest + self._drawn(1, 9)
        if spoiler == "opened":
            return op("Or", seen, self.respelled(data()))
        if spoiler in ("far", "far_too"):
            return op("Or", seen, self.further(far))
        if spoiler == "late":
            late = op("GreaterOrEqual", self.along(self._drawn(0, 2)), ops.number(later))
            return op("Or", seen, self.respelled(late))
        if spoiler == "far_ahead":
            return op("Or", seen, self.bounded(-far, is_below=True))
        causal = self.bounded(0, is_below=False)
        distance = op("Sub", self.along(1), self.along(0))
        if spoiler == "wrapped":  # past 127 it goes on from -128
            small = op("Cast", op("Cast", op("Mul", distance, ops.number(5)), to=int(ir.DataType.INT8)), to=7)
            return op("And", causal, op("Less", small, ops.number(5 * width)))
        if spoiler == "again":
            return op("And", causal, op("Less", op("Mod", distance, ops.number(far + width)), ops.number(width)))
        if spoiler == "parted":
            quotient = op("Div", op("Max", distance, ops.number(0)), ops.number(2 * self.longest))
            shown = op("And", op("Equal", quotient, ops.number(0)), self.bounded(far, is_below=False))
            return op("Or", seen, shown)
        if spoiler == "turned":  # near 0 and far behind alike
            middle = op("Abs", op("Sub", distance, ops.number(far)))
            return op("And", causal, op("Greater", middle, ops.number(far - width)))
        return seen

    def between(self, low: int, high: int) -> ir.Value:
        """Whether rows - columns is low .. high - 1."""
        op, number, real, floats = self.ops.op, self.ops.number, self.ops.real, self.ops.floats

        def bound(limit: int, is_below: bool) -> ir.Value:
            return self.bounded(limit, is_below=is_below)

        def absolute() -> ir.Value:
            twice = op("Mul", op("Sub", self.along(1), self.along(0)), number(2))
            return op("LessOrEqual", op("Abs", op("Sub", twice, number(low + high - 1))), number(high - 1 - low))

        def clipped() -> ir.Value:
            distance = op("Sub", self.along(1), self.along(0))
            return op("Equal", op("Clip", distance, number(low), number(high - 1)), distance)

        def numbers(name: str) -> ir.Value:
            return op(name, floats(bound(low, False)), floats(bound(high, True)))

        return self._one(
            lambda: op("And", bound(low, False), bound(high, True)),
            lambda: op("Not", op("Or", bound(low, True), bound(high, False))),
            lambda: op("Xor", bound(low, True), bound(high, True)),
            lambda: op("Greater", numbers("Mul"), real(0.5)),
            lambda: op("Cast", numbers("Min"), to=int(ir.DataType.BOOL)),
            lambda: op("Equal", numbers("Add"), real(2)),
            lambda: op("Greater", op("Sub", floats(bound(high, True)), floats(bound(low, True))), real(0.5)),
            lambda: op("Greater", op("Where", bound(high, True), floats(bound(low, False)), real(0)), real(0.5)),
            lambda: op("Less", op("Where", bound(low, True), real(1), floats(bound(high, False))), real(0.5)),
            lambda: op("Greater", self._cut(floats(bound(high, True)), -low), real(0.5)),
            absolute,
            clipped,
        )

    def bounded(self, limit: int, *, is_below: bool) -> ir.Value:
        """Whether rows - columns < limit; or, where it is not to be below, >= limit."""
        op, number = self.ops.op, self.ops.number

        def compared() -> ir.Value:
            value, factor, added = self._scaled()
            last = limit - 1 if is_below else limit  # the comparison takes in the last one, or does not
            is_upper, takes_in = is_below == (factor > 0), bool(self._drawn(0, 2))
            beyond = limit if is_below else limit - 1
            end = factor * (last if takes_in else beyond) + added
            names = ("LessOrEqual", "GreaterOrEqual") if takes_in else ("Less", "Greater")
            upper, lower = names
            first, second = self._in_one_type(value, number(end))
            if self._drawn(0, 2):
                return op(upper if is_upper else lower, first, second)
            return op(lower if is_upper else upper, second, first)

        def direct() -> ir.Value:
            further = op("Add", self.along(0), number(limit))
            return op("Less" if is_below else "GreaterOrEqual", self.along(1), further)

        def triangle() -> ir.Value:
            of = self._ones()
            diagonal = number(1 - limit if is_below else -limit)
            return op("Greater", op("Trilu", of, diagonal, upper=int(is_below)), self.ops.real(0.5))

        def largest() -> ir.Value:  # of whole numbers up to the last below the limit, or from the limit on
            distance = op("Sub", self.along(1), self.along(0))
            end = number(limit - 1 if is_below else limit)
            return op("Equal", op("Max" if is_below else "Min", distance, end), end)

        def quotient() -> ir.Value:
            parts = op("Div", op("Max", op("Sub", self.along(1), self.along(0)), number(0)), number(limit))
            return op("Less" if is_below else "GreaterOrEqual", parts, number(1))

        def opposite() -> ir.Value:
            return op("Not", self.bounded(limit, is_below=not is_below))

        ways = [compared, compared, direct, triangle, largest, opposite, *([quotient] if limit > 0 else [])]
        found = self._one(*ways)
        return self.respelled(found) if self._drawn(0, 4) == 0 else found

    def further(self, far: int) -> ir.Value:
        """Whether rows - columns is `far` or more, of some rows alone: what is true of those, in several spellings."""
        op, number, drawn = self.ops.op, self.ops.number, self._drawn
        rows, columns, part = self.along(1), self.along(0), drawn(2, 7)
        distance, back = op("Sub", rows, columns), op("Sub", columns, rows)
        ways = (
            lambda: self.bounded(far, is_below=False),
            lambda: op("Not", self.bounded(far, is_below=True)),
            lambda: op("Not", op("GreaterOrEqual", op("Mul", distance, number(-2)), number(1 - 2 * far))),
            lambda: op("Not", op("LessOrEqual", op("Sub", distance, number(far)), number(-1))),
            lambda: op("GreaterOrEqual", op("Abs", self._one(lambda: distance, lambda: back)), number(far)),
            lambda: op("Not", op("Less", op("Abs", self._one(lambda: distance, lambda: back)), number(far))),
            lambda: op("LessOrEqual", op("Mul", rows, number(-1)), number(-far)),
            lambda: op("Not", op("Less", op("Mul", rows, number(3)), number(3 * far))),
            lambda: op("GreaterOrEqual", op("Div", rows, number(part)), number(far // part)),
            lambda: op("Not", op("Less", op("Div", rows, number(part)), number(far // part))),
            lambda: op("Greater", op("Max", distance, number(-3)), number(far - 1)),
            lambda: op("Equal", op("Min", distance, number(far)), number(far)),
            lambda: op("Equal", op("Clip", distance, number(0), number(far)), number(far)),
        )
        some = (
            lambda: op("Equal", op("Mod", rows, number(part)), number(drawn(0, part))),
            lambda: op("Less", op("Mod", distance, number(part)), number(1)),
            lambda: op("Equal", op("Sub", rows, op("Mul", op("Div", rows, number(part)), number(part))),
                       number(drawn(0, part))),
        )  # fmt: skip
        found = self.bounded(far, is_below=False)
        for at in self.ops.random.permutation(len(ways))[:5]:
            found = op("And", found, ways[at]())
        return op("And", found, self._one(*some)) if drawn(0, 2) else found

    def respelled(self, truth: ir.Value) -> ir.Value:
        """The same truth, computed of it."""
        op, real, floats = self.ops.op, self.ops.real, self.ops.floats
        return self._one(
            lambda: op("Not", op("Less", floats(truth), real(1))),
            lambda: op("GreaterOrEqual", floats(truth), real(1)),
            lambda: op("LessOrEqual", real(1), floats(truth)),
            lambda: op("Greater", floats(truth), real(0)),
            lambda: op("Not", op("LessOrEqual", floats(truth), real(0))),
            lambda: op("Equal", floats(truth), real(1)),
            lambda: op("Not", op("Equal", floats(truth), real(0))),
            lambda: op("Cast", floats(truth), to=int(ir.DataType.BOOL)),
            lambda: op("Greater", op("Clip", op("Mul", floats(truth), real(5)), real(0), real(1)), real(0.5)),
            lambda: op("Less", op("Neg", floats(truth)), real(0)),
            lambda: op("Greater", op("Max", floats(truth), real(-1)), real(0)),
            lambda: op("Equal", op("Add", floats(truth), floats(truth)), real(2)),
            lambda: op("Xor", truth, self._truth(False)),
            lambda: op("Not", op("Xor", truth, self._truth(True))),
            lambda: op("Greater", op("Where", truth, real(1), real(0)), real(0)),
            lambda: op("Greater", op("Div", floats(truth), real(2)), real(0.25)),
        )

    def bias(self, seen: ir.Value, low: float, spoiler: str) -> ir.Value:
        """What is added to scores: 0 where they are seen, a low number elsewhere."""
        op, real, floats = self.ops.op, self.ops.real, self.ops.floats
        if spoiler == "endless":
            return op("Mul", floats(op("Not", seen)), real(-np.inf))
        if spoiler == "soft":
            low = -3.0
        selected = op("Where", seen, real(0), real(low))
        if not np.isfinite(low):
            return selected
        return self._one(
            lambda: selected,
            lambda: op("Mul", op("Sub", real(1), floats(seen)), real(low)),
            lambda: op("Mul", op("Sub", floats(seen), real(1)), real(-low)),
            lambda: op("Neg", op("Mul", floats(op("Not", seen)), real(-low))),
            lambda: op("Clip", op("Where", seen, real(0), real(-np.inf)), real(low)),
            lambda: op("Clip", op("Mul", op("Sub", floats(seen), real(1)), real(-1.0e12)), real(low), real(0)),
            lambda: op("Max", op("Where", seen, real(0), real(-np.inf)), real(low)),
        )

    def place(self, *, is_by_distance: bool) -> ir.Value:
        """What scores may be moved by: 0 .. 7, by how far a column lies behind its row, or by the row alone."""
        op, number, ints, spread = self.ops.op, self.ops.number, self.ops.ints, self._drawn(0, 3)
        if is_by_distance:
            value, factor, added = self._scaled()
            place = op("Clip", op("Div", op("Sub", value, number(added)), number(factor)), number(0), number(7))
        else:  # another one behind the longest sequence
            of_row = self._one(
                lambda: op("Mod", self.along(1), number(self.longest // 3)),
                lambda: op("Div", self.along(1), number(self.longest // 2)),
            )
            length = op("Unsqueeze", self.ops.length, ints(0))
            place = op("Expand", op("Min", of_row, number(7)), op("Concat", length, length, axis=0))
        if spread == 0:
            return op("Transpose", op("Transpose", place, perm=(1, 0)), perm=(1, 0))
        return op("Squeeze", op("Unsqueeze", place, ints(0)), ints(0)) if spread == 1 else place

    def along(self, axis: int) -> ir.Value:
        """Places of rows [time, 1], of axis 1, or of columns [1, time], of axis 0."""
        op, places = self.ops.op, self.ops.places
        return self._one(
            lambda: op("Unsqueeze", places, self.ops.ints(axis)),
            lambda: op("Reshape", places, self.ops.ints(*((-1, 1) if axis else (1, -1)))),
            lambda: op("Transpose", op("Unsqueeze", places, self.ops.ints(1 - axis)), perm=(1, 0)),
        )

    def _scaled(self) -> tuple[ir.Value, int, int]:
        """A value that is factor * (rows - columns) + added."""
        op, number, rows, columns = self.ops.op, self.ops.number, self.along(1), self.along(0)
        value, factor = self._one(
            lambda: (op("Sub", rows, columns), 1),
            lambda: (op("Sub", columns, rows), -1),
            lambda: (op("Add", rows, op("Neg", columns)), 1),
            lambda: (op("Add", op("Mul", columns, number(-1)), rows), 1),
            lambda: (op("Neg", op("Sub", columns, rows)), 1),
            lambda: (op("Sub", op("Mul", rows, number(2)), op("Mul", number(2), columns)), 2),
        )
        added = 0
        for _ in range(self._drawn(0, 3)):
            times, more = self._drawn(-2, 4) or -1, self._drawn(-3, 4)
            way = self._drawn(0, 4)
            if way == 0:
                value, factor, added = op("Mul", value, number(times)), factor * times, added * times
            elif way == 1:
                value, added = op("Add", number(more), value), added + more
            elif way == 2:
                value, added = op("Sub", value, number(more)), added - more
            else:
                value, factor, added = op("Sub", number(more), value), -factor, more - added
        return value, factor, added

    def _in_one_type(self, *values: ir.Value) -> list[ir.Value]:
        kind = self._one(lambda: 0, lambda: 0, lambda: 1, lambda: 6)
        return [self.ops.op("Cast", each, to=kind) for each in values] if kind else list(values)

    def _ones(self) -> ir.Value:
        length = self.ops.op("Unsqueeze", self.ops.length, self.ops.ints(0))
        return self.ops.op("Expand", self.ops.real(1), self.ops.op("Concat", length, length, axis=0))

    def _cut(self, numbers: ir.Value, diagonal: int) -> ir.Value:
        """Without what lies above a diagonal."""
        if diagonal == 0:
            return self.ops.op("Trilu", numbers, *[None] * self._drawn(0, 2), upper=0)
        return self.ops.op("Trilu", numbers, self.ops.number(diagonal), upper=0)

    def _truth(self, value: bool) -> ir.Value:
        return self.ops.op("Cast", self.ops.number(int(value)), to=int(ir.DataType.BOOL))

    def _drawn(self, low: int, end: int) -> int:
        return int(self.ops.random.integers(low, end))

    def _one(self, *ways: Callable[[], Found]) -> Found:
        return ways[self._drawn(0, len(ways))]()
