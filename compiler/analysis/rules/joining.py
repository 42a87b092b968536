"""Rules CC and SL: joining and cutting the padded axis at segment boundaries."""

from collections.abc import Sequence

import onnx_ir as ir
import sympy

from compiler.analysis.facts import (
    ANYTHING,
    FINITE,
    PLAIN,
    Action,
    Fact,
    Fill,
    Segment,
    Segments,
    Verdict,
    joined,
    logical_length,
    physical_length,
    refuse,
)
from compiler.analysis.rules.length import length_fact
from compiler.analysis.rules.lookup import slice_bounds
from compiler.analysis.rules.operands import rank_of
from compiler.ir import END, Dim, dims_of, int_attribute


def concat(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Concat along the padded axis appends segments; along another axis all inputs must be padded alike."""
    if any(fact.is_length for fact in facts):
        return Verdict("LN1", length_fact(node, facts), "shape arithmetic")
    rank = rank_of(node.inputs[0])
    axis = int_attribute(node, "axis", 0) % rank
    if all(fact.axis in (None, axis) for fact in facts):
        segments: Segments = ()
        fills = []
        for value, fact in zip(node.inputs, facts, strict=True):
            own = fact.segments or _full(value, axis)
            segments = joined(segments, own)
            if fact.axis is not None:
                fills.append(fact.fill)
        return Verdict("CC1", Fact(axis, segments, _same(fills)), "segments in logical order")
    if len({(fact.axis, fact.segments) for fact in facts}) != 1:
        raise refuse("Concat of differently padded inputs", "pad the inputs alike before joining them")
    return Verdict(
        "CC2", Fact(facts[0].axis, facts[0].segments, _same([fact.fill for fact in facts])), "joined along another axis"
    )


def _same(fills: Sequence[Fill]) -> Fill:
    if all(fill == fills[0] for fill in fills):
        return fills[0]
    return FINITE if all(fill.is_finite for fill in fills) else ANYTHING


def _full(value: ir.Value | None, axis: int) -> Segments:
    dims = dims_of(value) if value is not None else None
    size = None if dims is None else dims[axis]
    if not isinstance(size, int):
        raise refuse(
            f"{value.name if value else ''!r} joins the cache with {size} entries, a length that is not fixed",
            "fix the number of new frames per call in the recipe",
        )
    return (Segment(size, size),)


def slice_(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Slice of a padded value: at segment boundaries of the padded axis, or along another axis."""
    bounds = slice_bounds(node)
    if bounds is None:
        raise refuse("Slice with computed axes or several axes at once", "slice one axis at a time by constants")
    axis, start, end = bounds
    fact = facts[0]
    if fact.axis != axis:
        return Verdict("SL1", fact, "another axis is cut", pointwise=True)
    length = logical_length(fact.segments)
    first = _from_front(start, length)
    last = length if end == END else _from_front(end, length)
    kept = _cut(fact.segments, first, last)
    if kept is None and isinstance(start, int) and start < 0 and last == length:
        kept = _newest(fact.segments, -start)
    if kept is None:
        raise refuse(
            f"Slice [{start}:{'' if end == END else end}] cuts inside a padded segment of {fact}",
            "cut at the border between cached and new frames, or keep the newest frames",
        )
    segments, begin, stop = kept
    padded = any(not segment.is_full for segment in segments)
    result = Fact(axis, segments, fact.fill) if padded else PLAIN
    return Verdict("SL2", result, "cut at a segment boundary", Action.SPLIT_SLICE, bounds=(begin, stop))


def _from_front(bound: Dim, length: Dim) -> Dim:
    return length + bound if isinstance(bound, int) and bound < 0 else bound


def _cut(segments: Segments, first: Dim, last: Dim) -> tuple[Segments, int, int] | None:
    """Segments between two logical positions, with physical bounds; None when a bound falls inside padding."""
    begin = _physical(segments, first)
    stop = _physical(segments, last)
    if begin is None or stop is None or begin > stop:
        return None
    kept: list[Segment] = []
    offset = 0
    for segment in segments:
        low, high = max(begin, offset), min(stop, offset + segment.slots)
        if low < high:
            whole = high - low == segment.slots
            kept.append(segment if whole else Segment(high - low, high - low))
        offset += segment.slots
    return tuple(kept), begin, stop


def _newest(segments: Segments, frames: int) -> tuple[Segments, int, int] | None:
    """The last `frames` entries when only the first segment is padded: a static slice, for every true length."""
    total = physical_length(segments)
    if frames > total or not all(segment.is_full for segment in segments[1:]):
        return None
    full = total - segments[0].slots
    if frames <= full:
        return (Segment(frames, frames),), total - frames, total
    rest = frames - full
    cut = Segment(sympy.Min(segments[0].length, rest), rest)
    return (cut, *segments[1:]), total - frames, total


def _physical(segments: Segments, position: Dim) -> int | None:
    """The slot of a logical position that lies on a boundary or inside a full segment."""
    logical: Dim = 0
    offset = 0
    for segment in segments:
        distance = sympy.sympify(position - logical)
        if distance.is_Integer and (distance == 0 or (segment.is_full and 0 < distance <= segment.slots)):
            return offset + int(distance)
        logical, offset = logical + segment.length, offset + segment.slots
    return offset if position - logical == 0 else None
