"""Proves how padding and batching act on Concat, Slice and Split (rules CC, SL and SP).

Rule ids: CC1 segments joined, CC2 joined along another axis, CC3 one axis in another order, SL1 cut elsewhere, SL2 cut
along a padded axis, SL3 reversed, SL4 the last entries of each row, SL5 the newest entries of each row, as many as
there are up to a number, SP1 split elsewhere, SP2 split along a padded axis. Tables cut by lengths:
`compiler.proof.rules.lookup`.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

import sympy

from compiler.errors import Refused
from compiler.graph.lengths.symbolic_values import at_zero, same, symbolic_values_of
from compiler.graph.model import Dim, dims_of, is_op
from compiler.graph.operators.slices import END, slice_of
from compiler.graph.operators.splits import split_of
from compiler.graph.sizes.expressions import entries_between, normal_form
from compiler.graph.sizes.growth import never_falls, never_negative
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fact, Index, Region, Verdict, refuse
from compiler.proof.facts.interval import ZERO, Interval, hull
from compiler.proof.facts.layout import (
    Axis,
    Frames,
    Segment,
    Side,
    frames_of,
    is_padded,
    is_without_gap,
    joined,
    suffix,
    symbols_of,
    total,
)
from compiler.proof.facts.length_data import follows_from_lengths, spread_per_row
from compiler.proof.facts.registry import Table
from compiler.proof.rules.length import is_known
from compiler.proof.rules.lookup import rows_of_table
from compiler.proof.rules.movement import restated
from compiler.proof.rules.row_lookup import run_of


def concat(case: Case) -> Verdict:
    """Judge Concat: segments are appended along the joined axis; along others the operands have equal layouts."""
    axis = case.axis()
    _numbers_of_rows(case)
    operands = [operand for operand in case.present if not case.fact(operand).is_number]
    if not operands:
        return case.verdict("CC2", "numbers are joined", NUMBER)
    axes = _common_axes(case, operands, axis)
    has_number_behind = _has_number_behind(case, operands, axis)
    parts = [part for operand in operands for part in _segments(case, operand, axis)]
    if has_number_behind:
        return _moved_together(case, axis, parts, {**axes, axis: suffix(total(part.size for part in parts))})
    if any(case.fact(operand).axis(axis) is not None for operand in operands):
        axes[axis] = restated(joined(parts), case.out_dims()[axis])
        whole = _rearranged(case, operands, axis, axes[axis])
        if whole is not None:
            return _moved_together(case, axis, parts, {**axes, axis: whole})

    def content(region: Region) -> Interval:
        """Return the interval of a region; padding of the joined axis comes from the operands that have some."""
        holding = [operand for operand in operands if axis not in region or axis in case.fact(operand).padded]
        return hull(*(case.fact(operand).content(region) for operand in holding))

    along = axis in axes
    if len(operands) < len(case.present):  # differs as data; the indices of rows and frames are such
        joint = NUMBER if along else dataclasses.replace(case.output(axes, content), is_number=True)
        return case.verdict("CC2", "numbers are joined", joint)
    reason = "segments in logical order" if along else "joined along another axis"
    return case.verdict("CC1" if along else "CC2", reason, case.output(axes, content), pointwise=not along)


def _numbers_of_rows(case: Case) -> None:
    """Compute operands that depend on lengths and hold the batch per row, where they are joined to rows."""
    if any(case.fact(operand).rows_axis is not None for operand in case.present):
        with contextlib.suppress(Refused):
            spread_per_row(case)


def _has_number_behind(case: Case, operands: Sequence[int], axis: int) -> bool:
    """Whether one entry is joined behind frames that are padded behind, so that each row's entries must move up.

    A fill of the padding would not do: the Where of ONNX Runtime makes a 0.0 of a valid -0.0.
    """
    if len(operands) < 2 or len(operands) < len(case.present):
        return False
    first, *others = operands
    layout = case.fact(first).axis(axis)
    frames = None if layout is None else frames_of(layout)
    if (
        frames is None
        or not frames.is_suffix_padded
        or any(case.fact(operand).axis(axis) is not None for operand in others)
    ):
        return False
    if case.batch is not None and case.fact(first).rows_axis is None:
        return False
    contents = {case.fact(operand).anywhere for operand in others}
    return len(contents) == 1 and contents.pop().is_constant


def _rearranged(case: Case, operands: Sequence[int], axis: int, found: Axis) -> Axis | None:
    """Return the layout of an axis whose parts are joined in another order, with a gap between them; else None."""
    makers = [value.producer() if (value := case.node.inputs[operand]) is not None else None for operand in operands]
    sources = {maker.inputs[0] if maker is not None and is_op(maker, "Slice", "Split") else None for maker in makers}
    source = sources.pop() if len(sources) == 1 else None
    dims = None if source is None else dims_of(source)
    frames = frames_of(found)
    if dims is None or frames is None or frames.is_suffix_padded or len(operands) < 2:
        return None
    rows = case.fact(operands[0]).rows_axis
    if len(operands) < len(case.present) or (case.batch is not None and rows is None):
        return None
    only_behind = all(segment.is_full or segment.side is Side.LEFT for segment in frames.segments)
    whole = case.layout(dims[axis]) if only_behind and same(frames.size, dims[axis]) else None
    return whole if whole is not None and len(whole) == 1 else None


def _moved_together(case: Case, axis: int, parts: Sequence[Segment], axes: Mapping[int, Axis]) -> Verdict:
    """Return the verdict on joined parts of one axis, whose entries move together so that padding stays behind them."""
    case.rewrite("move_together", axis, tuple(parts))
    facts = [case.fact(operand) for operand in case.present]

    def content(region: Region) -> Interval:
        regions = [region, region - {axis}] if axis in region else [region]
        return hull(*(fact.content(each & frozenset(fact.padded)) for fact in facts for each in regions))

    reason = "the entries of one axis in another order"
    sizes = [part.size + 1 for part in parts if not isinstance(part.size, int) and (at_zero(part.size) or 0) < 0]
    return case.verdict("CC3", reason, case.output(axes, content), at_least_one=sizes)


def _common_axes(case: Case, operands: Sequence[int], axis: int) -> dict[int, Axis]:
    """Return the layouts along the axes that are not joined.

    Raises:
        Refused: the operands differ there.
    """
    axes: dict[int, Axis] = {}
    for operand in operands:
        for other, layout in case.fact(operand).axes:
            if other != axis and axes.setdefault(other, layout) != layout:
                raise refuse(
                    f"Concat of operands laid out {_shown(axes[other])} and {_shown(layout)} along axis {other}",
                    "pad the operands alike before joining them",
                )
    for operand in operands:
        for other in axes:
            if case.fact(operand).axis(other) is None:
                raise refuse(
                    f"Concat joins {case.dims(operand)[other]} entries along axis {other} to {_shown(axes[other])}",
                    "expand the operand to the batch and the length first",
                )
    return axes


def _shown(axis: Axis) -> str:
    return " * ".join(map(str, axis))


def _segments(case: Case, operand: int, axis: int) -> Sequence[Segment]:
    case.refuse_rows(operand, axis, "joins along")
    frames = case.simple_frames(operand, axis)
    return (Segment(case.dims(operand)[axis]),) if frames is None else frames.segments


@dataclasses.dataclass(frozen=True)
class SliceBounds:
    """The part of one axis that a Slice keeps.

    Attributes:
        start: first entry; negative ones count from the end.
        end: entry after the last, or None for the end of the axis.
        step: distance of kept entries.
    """

    start: Dim
    end: Dim | None
    step: int

    def turns_round(self, size: Dim) -> bool:
        """Whether the slice reverses a whole axis of this size."""
        return self.step == -1 and self.end is None and (self.start == -1 or normal_form(self.start - size) == -1)


def slice_(case: Case) -> Verdict:
    """Judge Slice: at segment borders, at fixed distances from valid ends, and of tables by lengths.

    A value shared by all rows and computed from lengths may be sliced anywhere, as each row computes it again.
    """
    try:
        return _slice(case)
    except Refused:
        if case.batch is None or case.fact().rows_axis is not None or not follows_from_lengths(case):
            raise
    case.needs.clear()
    return case.verdict("SL1", "a part of what follows from axis lengths", NUMBER)


def _slice(case: Case) -> Verdict:
    fact = case.fact()
    if fact.is_number:
        return case.verdict("SL1", "numbers are picked", NUMBER)
    bounds_by_axis = _bounds_by_axis(case)
    run = _run(case, bounds_by_axis)
    if run is not None:
        return run
    work = _Slicing(case, fact)
    for axis, sliced in bounds_by_axis.items():
        work.slice_axis(axis, sliced)
    if case.needs and len(bounds_by_axis) > 1:
        raise refuse(
            "Slice of several axes, one of them at positions that differ between rows", "slice one axis at a time"
        )
    out = case.output(work.axes, work.content, work.index)
    return case.verdict(work.rule, work.reason, out, pointwise=work.pointwise, at_least_one=work.at_least)


def _run(case: Case, bounds_by_axis: Mapping[int, SliceBounds]) -> Verdict | None:
    """Judge a slice whose start differs from row to row, or that goes back from the end; None for other slices."""
    if len(bounds_by_axis) != 1 or case.fact().rows_axis is None:
        return None
    ((axis, sliced),) = bounds_by_axis.items()
    layout = case.fact().axis(axis)
    frames = None if layout is None else frames_of(layout)
    if frames is None or not frames.is_suffix_padded:
        return None
    size, stated = frames.size, case.out_dims()[axis]
    is_reversed = sliced.turns_round(size)
    begins = sliced.step == 1 and not isinstance(sliced.start, int) and _begins_inside(case, sliced, size, stated)
    if not is_reversed and not begins:
        return None
    first = normal_form(size - 1) if is_reversed else sliced.start
    out = run_of(case, axis, first, sliced.step, size if is_reversed else stated)
    return case.verdict("IX6", "one run of entries of each row", out, at_least_one=[size])


def _begins_inside(case: Case, sliced: SliceBounds, size: Dim, stated: Dim) -> bool:
    """Whether a slice starts at an entry that moves with the length, and has the size that shape inference states."""
    end = size if sliced.end is None else sliced.end
    count = normal_form(end - sliced.start)
    if isinstance(normal_form(size - sliced.start), int) or not same(count, stated):  # at a fixed distance from the end
        return False
    shifted = {name: name + 1 for name in symbols_of(size) if case.sides.get(str(name)) is Side.LEFT}
    least = [sympy.sympify(each).subs(shifted) for each in (sliced.start, size - end, count)]
    return all(never_negative(normal_form(each)) for each in least)


def _bounds_by_axis(case: Case) -> dict[int, SliceBounds]:
    """Return the slice of each axis that is named.

    Raises:
        Refused: a bound depends on data.
    """
    view = slice_of(case.node)
    axis_slices = None if view is None else view.axis_slices(symbolic_values_of)
    if axis_slices is None:
        raise refuse("Slice with computed axes or steps", "give axes and steps as constants")
    bounds_by_axis: dict[int, SliceBounds] = {}
    for sliced in axis_slices:
        start, end, step = sliced.start, sliced.end, sliced.step
        if start is None or end is None or step is None:
            raise refuse("Slice with bounds computed from data", "slice by constants or sizes")
        if not isinstance(step, int):
            raise refuse("Slice with computed axes or steps", "give axes and steps as constants")
        far = end == (END if step > 0 else -END)
        bounds_by_axis[sliced.axis] = SliceBounds(start, None if far else end, step)
    return bounds_by_axis


class _Slicing:
    """The fact of a Slice's output while axis after axis is cut."""

    def __init__(self, case: Case, fact: Fact) -> None:
        self.step = 1
        self.case, self.fact = case, fact
        self.axes: dict[int, Axis] = dict(fact.axes)
        self.index: Index | None = fact.index
        self.mixed: set[int] = set()
        self.emptied: set[int] = set()
        self.at_least: list[Dim] = []
        self.rule, self.reason, self.pointwise = "SL1", "another axis is cut", True

    def content(self, region: Region) -> Interval:
        """Return the interval of a region; padding of a shorter axis may hold entries that were valid."""
        if self.emptied & region:
            return ZERO
        regions = [region & frozenset(self.fact.padded)]
        for at in self.mixed & region:
            regions += [each - {at} for each in regions]
        return hull(*(self.fact.content(each) for each in regions))

    def slice_axis(self, at: int, sliced: SliceBounds) -> None:
        """Slice one axis.

        Raises:
            Refused: entries would be selected by slot instead of by position.
        """
        case, stated = self.case, self.case.out_dims()[at]
        layout = self.fact.axis(at)
        if sliced.step == 1 and sliced.start == 0 and (sliced.end is None or sliced.end == case.dims()[at]):
            return
        if layout is None:
            self._slice_untracked(at, sliced)
            return
        case.refuse_rows(0, at, "cuts")
        frames = case.simple_frames(0, at)
        assert frames is not None
        self.pointwise, self.step = False, sliced.step
        self.rule, self.reason = "SL2", "cut where slots and positions agree"
        sliced_layout = self._kept(frames, at, sliced)
        sliced_layout = restated(sliced_layout, stated)
        if is_padded(sliced_layout) and any(not segment.is_full for segment in sliced_layout[0].segments):  # type: ignore[union-attr]
            self.axes[at] = sliced_layout
            return
        if not isinstance(stated, int) and not is_known(case, stated):
            raise refuse(
                f"Slice keeps {stated} entries, a number that does not follow from the declared axes",
                "slice by constants, or by sizes of inputs whose difference grows with the length",
            )
        del self.axes[at]

    def _slice_untracked(self, at: int, sliced: SliceBounds) -> None:
        ends = [bound for bound in (sliced.start, sliced.end) if bound is not None]
        moved = sliced.start if sliced.step == 1 and isinstance(sliced.start, int) and sliced.start >= 0 else None
        if self.index is not None and self.index.axis == at:
            self.index = None if moved is None else Index(at, self.index.offset + moved)
        if not any(self.case.depends(bound) or not is_known(self.case, bound) for bound in ends):
            return
        if sliced.step != 1:
            raise refuse(f"Slice of an unpadded axis by a length in steps of {sliced.step}", "slice in steps of 1")
        rows = rows_of_table(self.case, at, sliced.start, sliced.end)
        self.rule, self.reason, self.pointwise = rows.rule, rows.reason, False
        self.at_least += rows.at_least
        self.index = rows.index
        if rows.layout is not None:
            self.axes[at] = rows.layout
        if rows.has_rows:
            self.axes[0] = rows.rows

    def _kept(self, frames: Frames, at: int, sliced: SliceBounds) -> Axis:
        if sliced.step < 0:
            return self._reversed(frames, at, sliced)
        start = self._from_front(sliced.start, frames.size)
        stop = frames.size if sliced.end is None else self._from_front(sliced.end, frames.size)
        segments, blurred = _ended(frames, stop, self)
        if blurred:
            self.mixed.add(at)
        begun = _begun(segments, start, self, at, stop)
        if self.index is not None and self.index.axis == at:
            follows = isinstance(start, int) and sliced.step == 1
            self.index = Index(at, self.index.offset + start) if follows else None
        if sliced.step == 1:
            return begun
        (strided,) = begun
        if not isinstance(strided, Frames) or not strided.is_suffix_padded:
            raise refuse(f"Slice of {strided} in steps of {sliced.step}", "take every entry, or pad the axis behind")
        return (Frames((Segment(-sympy.floor(-strided.size / sliced.step)),)),)

    def _reversed(self, frames: Frames, at: int, sliced: SliceBounds) -> Axis:
        """Return the layout of a reversed axis, whose padding moves to the other end."""
        if not sliced.turns_round(frames.size):
            raise refuse(f"Slice backwards over a part of {frames}", "turn the whole axis round, then slice")
        self.rule, self.reason = "SL3", "the whole axis is turned round"
        if self.index is not None and self.index.axis == at:
            self.index = None
        other_side = {Side.LEFT: Side.RIGHT, Side.RIGHT: Side.LEFT}
        return joined(
            each if each.is_full else Segment(each.size, other_side[each.side]) for each in reversed(frames.segments)
        )

    def _from_front(self, bound: Dim, size: Dim) -> Dim:
        """Return a bound counted from the front, at most the end.

        Raises:
            Refused: it counts from the front for some lengths and from the end for others.
        """
        beyond = normal_form(bound - size)
        if isinstance(beyond, int) and beyond > 0:
            return size
        if isinstance(bound, sympy.Max) and len(bound.args) == 2 and 0 in bound.args:
            (first,) = (argument for argument in bound.args if argument != 0)
            if isinstance(normal_form(first - size), int):  # x[max(n - 8, 0):] is x[-8:]
                return normal_form(first)
        if isinstance(bound, int):
            return bound if bound >= 0 else normal_form(size + bound)
        if never_falls(bound):
            if (at_zero(bound) or 0) < 0:
                self.at_least.append(bound + 1)
            return bound
        if never_falls(-bound) and (at_zero(bound) or 0) <= 0:
            self.at_least.append(-bound)
            return normal_form(size + bound)
        raise refuse(f"Slice at {bound} of {size} entries", "cut at a fixed distance from either end")


def _refuse_inside(bound: Dim, segment: Segment, what: str) -> Exception:
    return refuse(
        f"Slice {what} {bound} cuts {segment} by slot, not by position",
        "cut at the border between cached and new frames, or at a fixed distance from the end that holds no padding",
    )


def _located(segments: Sequence[Segment], position: Dim) -> tuple[int, Dim, Dim]:
    """Return (segment, distance from its start, distance to its end) of a position; a number where lengths cancel.

    Raises:
        Refused: the position is at no fixed distance from a segment's border.
    """
    start: Dim = 0
    for number, segment in enumerate(segments):
        end = start + segment.size
        after, before = normal_form(position - start), normal_form(end - position)
        near = isinstance(after, int) and after >= 0 and (not segment.is_full or after <= segment.size)
        if near and not (segment.is_full and after == segment.size and number + 1 < len(segments)):
            return number, after, before
        if isinstance(before, int) and before > 0 and not isinstance(after, int):
            return number, after, before
        if before == 0 and number + 1 == len(segments):
            return number, after, before
        start = end
    if len(segments) == 1:
        return 0, normal_form(position), normal_form(segments[0].size - position)
    shown = " ++ ".join(map(str, segments))
    raise refuse(f"Slice at {position} of {shown}", "cut at the border between cached and new frames")


def _ended(frames: Frames, stop: Dim, work: _Slicing) -> tuple[list[Segment], bool]:
    """Return the segments in front of a position, and whether their padding may hold entries that were valid."""
    segments = list(frames.segments)
    number, after, before = _located(segments, stop)
    whole, last = segments[:number], segments[number]
    if before == 0:
        return [*whole, last], False
    if after == 0:
        return whole, False
    if last.is_full:
        return [*whole, Segment(after)], False
    if isinstance(before, int):  # the last few entries go
        work.at_least.append(normal_form(last.size - before + 1))
        return [*whole, Segment(normal_form(last.size - before), last.side)], last.side is Side.LEFT
    if last.side is Side.LEFT and isinstance(after, int):  # the first few entries stay
        if never_falls(last.size) and (at_zero(last.size) or 0) >= after:
            return [*whole, Segment(after)], False
        if len(segments) > 1 or isinstance(work.case.out_dims()[_axis_of(work, frames)], int):
            work.at_least.append(normal_form(last.size - after + 1))
            return [*whole, Segment(after)], False
        return [*whole, Segment(sympy.Min(last.size, after))], False
    if last.side is Side.LEFT and len(segments) == 1 and never_falls(after) and _is_never_negative(before):
        return [Segment(after)], True  # which is not negative from the least length on: see `_from_front`
    raise _refuse_inside(stop, last, "up to")


def _is_never_negative(distance: Dim) -> bool:
    """Whether a distance is not negative at any length."""
    return never_negative(distance) or (never_falls(distance) and (at_zero(distance) or 0) >= 0)


def _axis_of(work: _Slicing, frames: Frames) -> int:
    return next(at for at, axis in work.fact.axes if axis == (frames,))


def _begun(segments: list[Segment], start: Dim, work: _Slicing, axis: int, stop: Dim) -> Axis:
    """Return the layout of the segments from a position on."""
    if not segments:
        return joined([Segment(0)])
    number, after, before = _located(segments, start)
    first, rest = segments[number], segments[number + 1 :]
    if after == 0:
        return joined([first, *rest])
    if before == 0:
        return joined(rest or [Segment(0)])
    if first.is_full and isinstance(after, int):
        return joined([Segment(normal_form(first.size - after)), *rest])
    if first.side is Side.LEFT and isinstance(after, int):
        work.at_least.append(normal_form(first.size - after + 1))
        return joined([Segment(normal_form(first.size - after)), *rest])
    if first.side is Side.RIGHT and isinstance(before, int):
        if never_falls(first.size) and (at_zero(first.size) or 0) >= before:
            return joined([Segment(before), *rest])
        if number > 0:  # the last few entries must not reach into the segment before
            work.at_least.append(normal_form(first.size - before + 1))
            return joined([Segment(before), *rest])
        return joined([Segment(sympy.Min(first.size, before), Side.RIGHT), *rest])
    if first.side is Side.RIGHT and number == 0 and not rest and _keeps_newest(start, before):
        size_behind = entries_between(sympy.sympify(start), sympy.sympify(first.size))
        if size_behind not in (sympy.Min(first.size, part) for part in size_behind.args if part.is_Integer):
            work.mixed.add(axis)  # what is cut off lies in front of what is kept, unless that has all its slots
        return joined([Segment(size_behind, Side.RIGHT)])
    frames = work.fact.frames(axis)
    last = isinstance(before, int) and not rest and frames is not None and frames.is_suffix_padded
    if last and same_end(stop, frames) and work.step == 1:
        return _last_entries(work, axis, frames, before)
    if isinstance(before, int) and not rest and frames is not None and same_end(stop, frames) and work.step == 1:
        return _newest_entries(work, axis, frames, before)
    raise _refuse_inside(start, first, "from")


def _keeps_newest(start: Dim, before: Dim) -> bool:
    """Whether a slice from Max(0, size - n) on keeps more entries the more there are, at every length."""
    return never_negative(start) and never_negative(before) and never_falls(before)


def same_end(stop: Dim, frames: Frames | None) -> bool:
    """Whether a position is the end of an axis."""
    return frames is not None and normal_form(stop - frames.size) == 0


def _last_entries(work: _Slicing, axis: int, frames: Frames | None, count: Dim) -> Axis:
    """Return the layout of the last few entries of a suffix-padded axis, which lie elsewhere in every row."""
    assert isinstance(count, int) and frames is not None
    rows = work.fact.axis(work.fact.rows_axis) if work.fact.rows_axis is not None else None
    if work.case.batch is not None and (rows is None or len(rows) > 1):
        raise refuse(f"Slice [-{count}:] of {frames}, which all rows share", "give the value a batch axis of its own")
    work.case.rewrite("entries", axis, tuple(range(-count, 0)), False)
    work.at_least.append(normal_form(frames.size - count + 1))
    work.rule, work.reason = "SL4", "the last entries of each row"
    return joined([Segment(count)])


def _newest_entries(work: _Slicing, axis: int, frames: Frames, count: int) -> Axis:
    """Return the layout of the newest of cached frames and a chunk padded behind, which end elsewhere in every row."""
    if not is_without_gap(frames):
        raise refuse(f"Slice [-{count}:] of {frames}", "join the cache in front of the new frames, then slice")
    rows = work.fact.axis(work.fact.rows_axis) if work.fact.rows_axis is not None else None
    if work.case.batch is not None and (rows is None or len(rows) > 1):
        raise refuse(f"Slice [-{count}:] of {frames}, which all rows share", "give the value a batch axis of its own")
    newest_count = normal_form(sympy.Min(frames.size, count))
    work.case.rewrite("newest", axis, newest_count)
    work.rule, work.reason = "SL5", "the newest entries of each row"
    if isinstance(newest_count, int):
        return joined([Segment(newest_count)])
    work.emptied.add(axis)
    return joined([Segment(newest_count, Side.RIGHT)])


def split(case: Case) -> Verdict:
    """Judge Split: along untracked axes, or at borders of segments."""
    axis = case.axis()
    fact = case.fact()
    if fact.is_number:
        return case.verdict("SP1", "numbers are picked", NUMBER)
    if fact.axis(axis) is None:
        index = None if fact.index is not None and fact.index.axis == axis else fact.index
        return case.verdict("SP1", "another axis is split", dataclasses.replace(fact, index=index), pointwise=True)
    case.refuse_rows(0, axis, "splits")
    outputs: list[Fact] = []
    at_least: list[Dim] = []
    start: Dim = 0
    for size in _sizes(case, axis):
        work = _Slicing(case, fact)
        end = normal_form(start + size)
        work.slice_axis(axis, SliceBounds(start, end, 1))
        outputs.append(case.output(work.axes, work.content, work.index))
        at_least += work.at_least
        start = end
    if not same(start, case.dims()[axis]):
        told = f"Split of {fact.frames(axis)} into pieces of {start} entries in all, which no other length has"
        raise refuse(told, "slice the pieces, or give the axis one size in the recipe: fixed, in place of buckets")
    if case.needs:
        raise refuse("Split of the last entries of a padded axis", "slice the last entries off")
    return case.verdict("SP2", "split at borders of segments", *outputs, at_least_one=at_least)


def _sizes(case: Case, axis: int) -> Sequence[Dim]:
    """Return the sizes of the pieces.

    Raises:
        Refused: they are equal parts, which differ between both programs, or depend on data.
    """
    view = split_of(case.node, symbolic_values_of)
    if view is None or view.sizes is None:
        raise refuse(f"Split of {case.fact().frames(axis)} into equal parts", "give the sizes of the parts")
    sizes = [size for size in view.sizes if size is not None]
    if len(sizes) < view.count:
        raise refuse(f"Split of {case.fact().frames(axis)} into parts of computed sizes", "give constants or sizes")
    return sizes


TABLE: Table = {("", "Concat"): concat, ("", "Slice"): slice_, ("", "Split"): split}
