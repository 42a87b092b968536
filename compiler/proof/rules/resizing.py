"""Proves how padding and batching act on Pad, DepthToSpace, SpaceToDepth and image operators (rules IX13, IX14, RS).

Rule ids: IX13 constants are added, IX14 copies of valid entries are added, RS3 every row by itself, RS4 blocks of
channels become places.
"""

import dataclasses
from collections.abc import Mapping

from compiler.graph.lengths.symbolic_values import names_in, quotient, symbolic_values_of
from compiler.graph.model import Dim
from compiler.graph.operators.pads import pad_of
from compiler.graph.sizes.expressions import normal_form
from compiler.graph.sizes.growth import function_of, never_falls
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Region, Verdict, refuse
from compiler.proof.facts.interval import Interval
from compiler.proof.facts.layout import Axis, Frames, Segment, Side, joined
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.rules.kernel_windows import stated
from compiler.proof.rules.length import is_known
from compiler.proof.rules.resampling import resize


@dataclasses.dataclass(frozen=True)
class Ends:
    """The entries added to the ends of one axis; negative numbers are cut off.

    Attributes:
        begin: entries in front.
        end: entries behind.
    """

    begin: Dim
    end: Dim

    @property
    def is_nothing(self) -> bool:
        """Whether the axis keeps its size."""
        return (self.begin, self.end) == (0, 0)


@dataclasses.dataclass(frozen=True)
class Grown:
    """A padded axis after entries were added.

    Attributes:
        axis: the layout; None where its size no longer hangs on a length.
        least: sizes that have to be 1 or more.
        fill: whether the padding becomes added entries, and so has to hold their value.
        is_cropped: whether valid entries may come to lie in the padding.
    """

    axis: Axis | None
    least: tuple[Dim, ...] = ()
    fill: bool = False
    is_cropped: bool = False


def pad(case: Case) -> Verdict:
    """Judge Pad: entries added beside valid ones lie in the padding, which must hold them."""
    mode = str(case.attribute("mode", "constant"))
    ends = {axis: growth for axis, growth in _ends(case).items() if not growth.is_nothing}
    for axis in ends:
        case.refuse_rows(0, axis, "pads")
    if mode != "constant":
        return _pad_by_entries(case, mode, ends)
    value = _value(case)
    grown = {axis: grown_axis for axis, growth in ends.items() if (grown_axis := _grow(case, axis, growth)) is not None}
    for axis, growth in grown.items():
        if growth.fill:
            if not value.is_constant:
                raise refuse(f"Pad with a computed value behind {case.fact().frames(axis)}", "pad with a constant")
            case.fill(0, axis, value.low)
    fact = case.fact()
    after = {**fact.tracked, **{axis: growth.axis for axis, growth in grown.items()}}
    axes = {padded_axis: axis for padded_axis, axis in after.items() if axis is not None}
    created = set(axes) - set(fact.padded)
    cropped = {axis for axis, growth in grown.items() if growth.is_cropped}

    def content(region: Region) -> Interval:
        if region & created & set(grown):
            return value
        content_read = iv.hull(
            *(fact.content(region_read) for region_read in fact.regions if region - cropped <= region_read <= region)
        )
        return iv.hull(content_read, value) if ends else content_read

    sizes = [size for growth in grown.values() for size in growth.least]
    reason = "added entries are what the padding holds" if sizes else "other axes are padded"
    out = case.output(axes, content)
    return case.verdict("IX13", reason, out, pointwise=not grown, at_least_one=sizes)


def _ends(case: Case) -> dict[int, Ends]:
    """Return the numbers of added entries, by axis.

    Raises:
        Refused: a number depends on data.
    """
    pad = pad_of(case.node, symbolic_values_of, case.rank())
    if pad is None or not all(is_known(case, number) for pair in pad.added.values() for number in pair):
        raise refuse("Pad by amounts that do not follow from axis lengths", "pad by constants or by sizes")
    return {at: Ends(normal_form(begin), normal_form(end)) for at, (begin, end) in pad.added.items()}


def _value(case: Case) -> Interval:
    if not case.has(2):
        return iv.ZERO
    fact = case.fact(2)
    if fact.axes or fact.is_number:
        raise refuse("Pad with a value that follows from lengths or differs per row", "pad with a constant")
    return fact.valid


def _grow(case: Case, at: int, ends: Ends) -> Grown | None:
    """Return the layout of an axis with entries added; None where it is fixed and stays so.

    Raises:
        Refused: amounts shrink while lengths grow, or more entries may be removed than there are.
    """
    frames = case.simple_frames(0, at)
    if frames is None:
        size = case.dims()[at]
        if all(isinstance(amount, int) for amount in (size, ends.begin, ends.end)):
            return None
        if not is_known(case, size):
            raise refuse(f"Pad of an axis of unknown size {size}", "cut by bounds whose difference is known")
        frames = Frames((Segment(size),))
    elif _is_made_fixed(frames, ends):
        return Grown(None, fill=True)
    parts = list(frames.segments)
    least: list[Dim] = []
    fill = False
    first, last = parts[0], parts[-1]
    if _crops(ends.begin):
        parts[0] = Segment(normal_form(first.size + ends.begin), first.side)
        least.append(parts[0].size + 1)
    elif ends.begin != 0 and first.side is Side.RIGHT and not first.is_full:
        parts[0], fill = Segment(_growing(case, first.size + ends.begin, ends.begin), Side.RIGHT), True
    elif ends.begin != 0:
        parts.insert(0, Segment(_growing(case, ends.begin, ends.begin), Side.RIGHT))
    last = parts[-1]
    if _crops(ends.end):
        parts[-1] = Segment(normal_form(last.size + ends.end), last.side)
        least.append(parts[-1].size + 1)
    elif ends.end != 0 and last.side is Side.LEFT and not last.is_full:
        parts[-1], fill = Segment(_growing(case, last.size + ends.end, ends.end), Side.LEFT), True
    elif ends.end != 0:
        parts.append(Segment(_growing(case, ends.end, ends.end)))
    if any(isinstance(part.size, int) and part.size < 0 for part in parts):
        raise refuse(f"Pad cuts {ends.begin} and {ends.end} entries off {frames}", "cut off less")
    axis = joined(parts)
    size = stated(case, at, normal_form(frames.size + ends.begin + ends.end))
    (whole,) = axis
    assert isinstance(whole, Frames)
    if len(whole.segments) == 1:
        axis = (Frames((dataclasses.replace(whole.segments[0], size=size),)),)
    is_cropped = _crops(ends.begin) or _crops(ends.end)
    least += [
        amount + 1
        for amount in (ends.begin, ends.end)
        if not isinstance(amount, int) and not _is_never_negative(amount)
    ]
    return Grown(axis, (*least, size + 1), fill, is_cropped)


def _is_made_fixed(frames: Frames, ends: Ends) -> bool:
    """Whether added entries bring one length to a fixed number, so that the padding becomes the added entries.

    Where a bucket has more slots, the rest is removed, as it is of a row that long.
    """
    if len(frames.segments) > 1 or not isinstance(normal_form(frames.size + ends.begin + ends.end), int):
        return False
    (segment,) = frames.segments
    kept = ends.begin if segment.side is Side.LEFT else ends.end
    return isinstance(kept, int) and not segment.is_full


def _crops(amount: Dim) -> bool:
    return isinstance(amount, int) and amount < 0


def _growing(case: Case, size: Dim, amount: Dim) -> Dim:
    """Return a size to which a number of entries is added.

    Raises:
        Refused: shorter rows would get more of them, or some would be removed at every length.
    """
    whole = normal_form(size)
    if not isinstance(amount, int) and (
        not never_falls(whole) or not (never_falls(amount) or _is_never_negative(amount))
    ):
        raise refuse(
            f"Pad adds {amount} entries, which does not grow with the length",
            "pad by constants, or by amounts that grow with the length",
        )
    return whole


def _is_never_negative(size: Dim) -> bool:
    names = sorted(names_in(size), key=str)
    value = function_of(size, names)
    return all(value(*[length + 5 * at for at in range(len(names))]) >= 0 for length in range(600))


def _pad_by_entries(case: Case, mode: str, ends: Mapping[int, Ends]) -> Verdict:
    """Judge Pad by edge, reflection or wrapping: added entries are copies of valid ones.

    Raises:
        Refused: amounts are computed, or valid entries are not adjacent.
    """
    if mode not in ("edge", "reflect", "wrap"):
        raise refuse(f"Pad by {mode!r}", "pad by constant, edge, reflect or wrap")
    axes: dict[int, Axis] = {}
    anew: list[tuple[int, int, Dim]] = []
    rest = [0] * (2 * case.rank())
    sizes: list[Dim] = []
    for axis, growth in ends.items():
        begin, end, frames = growth.begin, growth.end, case.simple_frames(0, axis)
        is_computed = mode == "edge" and not isinstance(end, int) and _repeats_last(frames, end)
        if not isinstance(begin, int) or not (isinstance(end, int) or is_computed):
            raise refuse(f"Pad by {mode} of {begin} and {end} entries", "pad by constant amounts")
        rest[axis], rest[axis + case.rank()] = begin, end if isinstance(end, int) else 0
        if frames is None:
            continue
        if len(frames.segments) != 1:
            raise refuse(f"Pad by {mode} of {frames}", "pad before joining")
        side = frames.segments[0].side
        size = stated(case, axis, normal_form(frames.size + begin + end))
        axes[axis] = (Frames((Segment(size, side),)),)
        sees = begin > 0 if side is Side.RIGHT else is_computed or end > 0
        if sees or (mode == "wrap" and max(begin, end) > 0):
            if _crops(begin) or _crops(end):
                raise refuse(f"Pad by {mode} that cuts off entries, too", "cut with Slice")
            anew.append((axis, begin, size))
            rest[axis] = rest[axis + case.rank()] = 0
        sizes.append(normal_form(frames.size - (1 if is_computed else _read_beside(mode, begin, end)) + 1))
    fact = case.fact()
    if anew:
        if fact.rows_axis is None and case.batch is not None:
            raise refuse(f"Pad by {mode} of a value that all rows share", "give the value a batch axis")
        case.rewrite("mirror", mode, tuple(anew), tuple(rest))
    copied = {axis for axis, _, _ in anew}
    cropped = {axis for axis in axes if _crops(ends[axis].begin) or _crops(ends[axis].end)}

    def content(region: Region) -> Interval:
        here = region - copied
        return iv.hull(
            *(fact.content(region_read) for region_read in fact.regions if here - cropped <= region_read <= here)
        )

    out = case.output({**fact.tracked, **axes}, content)
    return case.verdict("IX14", "copies of valid entries", out, pointwise=not axes, at_least_one=sizes)


def _repeats_last(frames: Frames | None, count: Dim) -> bool:
    """Whether the last entry of every row may be repeated `count` times behind it: longer rows are no shorter then."""
    if frames is None or len(frames.segments) != 1 or frames.segments[0].side is not Side.LEFT:
        return False
    return _is_never_negative(count) and never_falls(normal_form(frames.size + count))


def _read_beside(mode: str, begin: int, end: int) -> int:
    """Return how many entries an axis needs for these numbers of entries to be copied or removed."""
    reads = {"edge": 1, "reflect": max(begin, end, 0) + 1, "wrap": max(begin, end, 1)}[mode]
    return reads - min(begin, 0) - min(end, 0)


def blocks(case: Case) -> Verdict:
    """Judge DepthToSpace and SpaceToDepth: channels become neighbours, or the other way round."""
    size = case.int_attribute("blocksize", 1)
    case.refuse_rows(0, 1, "rearranges")
    if case.fact().axis(1) is not None:
        raise refuse(f"{case.op} rearranges a padded axis", "transpose frames behind the channels")
    fact = case.fact()
    axes: dict[int, Axis] = {first_axis: axis for first_axis, axis in fact.axes if first_axis == 0}
    for axis in (2, 3):
        frames = case.simple_frames(0, axis)
        if frames is None:
            continue
        parts = []
        for part in frames.segments:
            scaled = part.size * size if case.op == "DepthToSpace" else _whole(case, part.size, size)
            parts.append(Segment(normal_form(scaled), part.side))
        if len(parts) == 1:
            parts = [dataclasses.replace(parts[0], size=stated(case, axis, parts[0].size))]
        axes[axis] = (Frames(tuple(parts)),)
    return case.verdict("RS4", "blocks stay whole", case.output(axes, fact.content), pointwise=len(axes) <= 1)


def _whole(case: Case, size: Dim, block: int) -> Dim:
    found = quotient(normal_form(size), block)
    if found is None:
        raise refuse(f"{case.op} cuts {size} entries into blocks of {block}", "make the length a multiple of it")
    return found


def by_entry(case: Case) -> Verdict:
    """Judge an operator that computes every entry of axis 0 from the same entry of its operands, without padding.

    Raises:
        Refused: another axis is tracked, or operands have different layouts.
    """
    tracked = [(operand, case.fact(operand)) for operand in case.present if case.fact(operand).axes]
    layouts = {fact.axis(0) for _, fact in tracked}
    if any(set(fact.tracked) != {0} for _, fact in tracked) or len(layouts) != 1:
        raise refuse(f"{case.op} over padded axes, whose positions are shares of the length", "resize by Resize")
    if any(case.fact(operand).is_number for operand in case.present):
        raise refuse(f"{case.op} by numbers that follow from lengths", "give them as constants")
    (axis,) = layouts
    assert axis is not None
    return case.verdict(
        "RS3", "every row by itself", case.output({0: axis}, lambda region: iv.ANYTHING), pointwise=True
    )


TABLE: Table = {
    ("", "Pad"): pad,
    ("", "Resize"): resize,
    ("", "Upsample"): named_refusal("is deprecated", "export with opset 17 or newer, which has Resize"),
    ("", "DepthToSpace"): blocks,
    ("", "SpaceToDepth"): blocks,
    ("", "GridSample"): by_entry,
    ("", "AffineGrid"): by_entry,
    ("", "Col2Im"): by_entry,
    ("", "CenterCropPad"): named_refusal("cuts around the middle of an axis", "use Slice and Pad"),
}
