"""Rules CC and SL: joining and cutting."""

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import Fact, Index, Region, Verdict, refuse
from compiler.analysis.interval import Interval
from compiler.analysis.layout import Axis, Frames, Segment, Side, is_padded, joined, symbols_of
from compiler.analysis.registry import Table
from compiler.ir import Dim

TO_THE_END = 2**31 - 1
"""Exporters with 32-bit indices write this for "to the end of the axis"; no axis is that long."""


def concat(case: Case) -> Verdict:
    """Concat: segments are appended along a padded axis; along another all operands are padded alike."""
    axis = case.axis_attribute("axis", 0)
    if any(case.fact(operand).is_number for operand in case.present):
        raise refuse("Concat of an axis length with data", "use the length as a shape only")
    axes: dict[int, Axis] = {}
    for operand in case.present:
        case.refuse_rows(operand, axis, "joins along")
        for at, layout in case.fact(operand).axes:
            if at != axis and axes.setdefault(at, layout) != layout:
                raise refuse("Concat of differently padded operands", "pad the operands alike before joining them")
    for operand in case.present:
        for at in axes:
            if case.fact(operand).axis(at) is None:
                raise refuse(
                    f"Concat joins an operand with {case.dims(operand)[at]} entries along axis {at} to padded ones",
                    "expand it to the batch and the length first",
                )
    parts: list[Segment] = []
    for operand in case.present:
        frames = case.simple_frames(operand, axis)
        parts += frames.segments if frames is not None else (Segment(case.dims(operand)[axis]),)
    if any(not part.is_full for part in parts):
        axes[axis] = joined(parts)

    def content(region: Region) -> Interval:
        found = []
        for operand in case.present:
            fact = case.fact(operand)
            if axis in region and axis not in fact.padded:
                continue
            found.append(fact.content(region))
        return iv.hull(*found)

    along = axis in axes
    return case.verdict(
        "CC1" if along else "CC2",
        "segments in order" if along else "joined along another axis",
        case.output(axes, content),
        pointwise=not along,
    )


def split(case: Case) -> Verdict:
    """Split along an untracked axis."""
    axis = case.axis_attribute("axis", 0)
    if case.fact().axis(axis) is not None:
        case.refuse_rows(0, axis, "splits")
        raise refuse("Split of a padded axis", "slice at the border between cached and new frames")
    fact = case.fact()
    out = Fact(fact.axes, fact.contents, index=fact.index)
    return case.verdict("MV5", "another axis is split", out, pointwise=True)


def slice_(case: Case) -> Verdict:
    """Slice: at either end of padded axes, or anywhere along others."""
    fact = case.fact()
    rank, dims, after = case.rank(), case.dims(), case.out_dims()
    cuts = slice_cuts(case)
    axes = {at: layout for at, layout in fact.axes if at not in cuts}
    shortened: set[int] = set()
    at_least: list[Dim] = []
    index = fact.index
    whole = True
    for at, (start, end, step) in cuts.items():
        layout = fact.axis(at)
        if start == 0 and step == 1 and (end is None or end == dims[at]):
            if layout is not None:
                axes[at] = layout
            continue
        whole = False
        if layout is None:
            made = _rows_of_table(case, at, start, end, step)
            if made is not None:
                axes[at] = made
            if index is not None and index.axis == at:
                index = None
            continue
        case.refuse_rows(0, at, "cuts")
        frames = case.simple_frames(0, at)
        assert frames is not None
        made = _cut(case, frames, start, end, step, after[at], at_least)
        shortened.add(at)
        if is_padded(made) and any(not each.is_full for each in made[0].segments):  # type: ignore[union-attr]
            axes[at] = made
        if index is not None and index.axis == at:
            moved = start if isinstance(start, int) and start >= 0 and step == 1 else None
            index = None if moved is None or not frames.is_suffix_padded else Index(at, index.offset + moved)

    def content(region: Region) -> Interval:
        """Entries that were valid may lie in the padding of the shorter axis."""
        regions = [region & frozenset(fact.padded)]
        for at in shortened & region:
            regions += [each - {at} for each in regions]
        return iv.hull(*(fact.content(each) for each in regions))

    if index is not None and index.axis in cuts and index.axis not in axes:
        index = None
    assert rank == len(after)
    reason = "cut where padding cannot tell" if shortened else "another axis is cut"
    return case.verdict(
        "SL2" if shortened else "SL1",
        reason,
        case.output(axes, content, index),
        pointwise=whole or not (shortened or len(axes) > len(fact.axes)),
        at_least_one=at_least,
    )


Cut = tuple[Dim, Dim | None, int]


def slice_cuts(case: Case) -> dict[int, Cut]:
    """(start, end or None for the end, step) per sliced axis; bounds as written, negative ones from the end.

    Raises:
        Refused: a bound is not known from constants and axis lengths.
    """
    starts, ends = case.integers(1), case.integers(2)
    axes = case.integers(3) if case.has(3) else tuple(range(len(starts or ())))
    steps = case.integers(4) if case.has(4) else (1,) * len(starts or ())
    if starts is None or ends is None or axes is None or steps is None:
        raise refuse("Slice with bounds computed from data", "slice by constants or sizes")
    cuts: dict[int, Cut] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(step, int) or not isinstance(axis, int):
            raise refuse("Slice with computed axes or steps", "give axes and steps as constants")
        to_the_end = isinstance(end, int) and end >= TO_THE_END and step > 0
        cuts[axis % case.rank()] = (start, None if to_the_end else end, step)
    return cuts


def _rows_of_table(case: Case, at: int, start: Dim, end: Dim | None, step: int) -> Axis | None:
    """The layout of entries of an untracked axis that are chosen by axis lengths; None for a fixed number.

    Entry k of table[a:b] is table[a + k]. With a fixed start that is the same entry for every length. A start of
    c - f(length) puts as many slots before the valid entries as f is longer in slots than in truth.
    """
    size = case.out_dims()[at]
    if not case.depends(size) and not symbols_of(start):
        return None
    if step != 1:
        raise refuse(f"Slice of an unpadded axis by a length in steps of {step}", "slice in steps of 1")
    if isinstance(start, int) and start >= 0:
        made = case.layout(size)
        if made is not None and isinstance(made[0], Frames) and made[0].segments[0].side is Side.RIGHT:
            case.rewrite("look_up_positions", at)
        return made
    rows = case.dims()[at]
    if isinstance(start, int) or not isinstance(rows, int):
        raise refuse(f"Slice [{start}:{end}] of {rows} unpadded entries", "slice a table of fixed size from its start")
    return _centered(case, at, start, rows if end is None else end, rows)


def _centered(case: Case, at: int, start: Dim, end: Dim, rows: int) -> Axis:
    """Entries around a fixed one: [f(length), right] ++ [g(length), left]."""
    assert not isinstance(start, int)
    sides = {case.sides.get(str(name)) for name in start.free_symbols}
    at_zero = start.subs(dict.fromkeys(start.free_symbols, 0))
    before = at_zero - start
    if not at_zero.is_Integer or sides not in ({Side.LEFT}, {Side.RIGHT}):
        raise refuse(f"Slice [{start}:{end}] of {rows} unpadded entries", "slice around a fixed entry")
    if sides == {Side.RIGHT}:
        count = case.out_dims()[at]
        if end == rows:
            case.rewrite("slice_last_rows", at)
            made = case.layout(count)
            assert made is not None
            return made
        if isinstance(count, int):
            case.rewrite("look_up_new_rows", at)
            return (Frames((Segment(count),)),)
        raise refuse(f"Slice [{start}:{end}] of {rows} unpadded entries", "look positions up as table[:length]")
    if before.could_extract_minus_sign():
        raise refuse(f"Slice [{start}:{end}] starts at a length", "look positions up as table[:length]")
    first = int(at_zero) % rows if at_zero < 0 else int(at_zero)
    last = end if not isinstance(end, int) or end >= 0 else rows + end
    return joined([Segment(before, Side.RIGHT), Segment(last - first, Side.LEFT)])


def _cut(
    case: Case, frames: Frames, start: Dim, end: Dim | None, step: int, size: Dim, at_least: list[Dim]
) -> Axis:
    """The layout after a cut of a padded axis.

    Raises:
        Refused: the kept entries would be chosen by slot instead of by position.
    """
    if step < 1:
        raise refuse("Slice that reverses a padded axis", "reverse by ReverseSequence with the lengths")
    stop = frames.size if end is None else frames.size + end if isinstance(end, int) and end < 0 else end
    if frames.is_suffix_padded and isinstance(start, int) and start >= 0:
        if isinstance(stop, int) and isinstance(size, int):
            at_least.append(frames.size - stop + 1)
            return (Frames((Segment(size),)),)
        return (Frames((Segment(size),)),)
    if frames.is_prefix_padded and step == 1:
        dropped = frames.size - stop
        first = frames.size + start if isinstance(start, int) and start < 0 else start
        if isinstance(dropped, int) or dropped.is_Integer and int(dropped) >= 0:
            kept = frames.size - int(dropped) - first
            if first == 0 or not isinstance(first, int):
                return _right(case, kept, start, size, at_least)
    raise refuse(
        f"Slice [{start}:{'' if end is None else end}] of {frames} keeps entries by slot, not by position",
        "cut where no padding is: the front of an axis padded behind, the back of one padded in front",
    )


def _right(case: Case, kept: Dim, start: Dim, size: Dim, at_least: list[Dim]) -> Axis:
    if isinstance(start, int) and start < 0 and isinstance(size, int):
        return (Frames((Segment(size),)),)
    return (Frames((Segment(int(kept) if not isinstance(kept, int) and kept.is_Integer else kept, Side.RIGHT),)),)


TABLE: Table = {("", "Concat"): concat, ("", "Split"): split, ("", "Slice"): slice_}
