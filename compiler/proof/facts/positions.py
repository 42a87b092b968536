"""Bounds the distance of key and query positions, valid and padded ones apart, for causal and banded masks.

key position - query position, both along axes of L entries, valid first:
    key in the padding, query valid:  at least 1
    key valid, query in the padding:  at most -1
"""

import dataclasses
import math

from compiler.graph.lengths.symbolic_values import at_zero, symbolic_values_of
from compiler.graph.model import Dim
from compiler.graph.sizes.growth import never_falls
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Region
from compiler.proof.facts.interval import Interval
from compiler.proof.facts.layout import Frames, frames_of, symbols_of


@dataclasses.dataclass(frozen=True)
class Span:
    """Bounds of positions as expressions over true lengths; None where there is no bound.

    Attributes:
        low: the smallest.
        high: the largest.
        exact: the position itself where both operands count along one axis: (axis of the output, offset).
    """

    low: Dim | None
    high: Dim | None
    exact: tuple[int, Dim] | None = None


def difference(case: Case, region: Region, rank: int) -> Interval | None:
    """Return bounds of operand 0 minus operand 1 in a region of the output; None where nothing is known.

    Numbers computed from axis lengths are those of the padded program; bounds on them hold for the unpadded one as
    well. At least one operand has to count positions.
    """
    spans = [_span(case, operand, region, rank) for operand in (0, 1)]
    first, second = spans
    if first is None or second is None or (case.fact(0).index is None and case.fact(1).index is None):
        return None
    if first.exact is not None and second.exact is not None and first.exact[0] == second.exact[0]:
        low = high = first.exact[1] - second.exact[1]
        bounds = Interval(_least(low), -_least(-high))
    else:
        low = None if first.low is None or second.high is None else first.low - second.high
        high = None if first.high is None or second.low is None else first.high - second.low
        bounds = Interval(-math.inf if low is None else _least(low), math.inf if high is None else -_least(-high))
    return None if math.isinf(bounds.low) and math.isinf(bounds.high) else bounds


def _least(size: Dim) -> float:
    """Return a lower bound of an expression over lengths."""
    if isinstance(size, int):
        return size
    if size.is_Integer:
        return int(size)
    least = at_zero(size) if never_falls(size) else None
    return -math.inf if least is None else least


def _span(case: Case, operand: int, region: Region, rank: int) -> Span | None:
    fact = case.fact(operand)
    if fact.is_number:
        return _number(case, operand)
    index = fact.index
    if index is None:
        start = fact.valid.low
        whole = not fact.axes and fact.valid.is_constant and abs(start) < 2**53 and start == int(start)
        return Span(int(start), int(start)) if whole else None
    output_axis = index.axis + rank - case.rank(operand)
    axis = fact.axis(index.axis)
    if axis is None:
        size = case.dims(operand)[index.axis]
        if not isinstance(size, int):
            return None
        return Span(index.offset, index.offset + size - 1, (output_axis, index.offset) if size > 1 else None)
    frames = frames_of(axis)
    if frames is None:
        return None
    inside = Span(index.offset, index.offset + frames.size - 1, (output_axis, index.offset))
    if case.fact(1 - operand).is_number:
        return inside if _is_alike(fact, index.offset, region, frames) else None
    if output_axis not in region:
        return inside
    if frames.is_suffix_padded:
        return Span(index.offset + frames.size, None, inside.exact)
    if frames.is_prefix_padded:
        return Span(None, index.offset - 1, inside.exact)
    return Span(None, None, inside.exact)


def _is_alike(fact: Fact, offset: Dim, region: Region, frames: Frames) -> bool:
    """Whether bounds by slots in the padded program equal bounds by true lengths in the unpadded one."""
    if fact.rows_axis is None:
        return True  # counted over the slots
    return not symbols_of(offset) and (not region or frames.is_suffix_padded)


def _number(case: Case, operand: int) -> Span | None:
    known = symbolic_values_of(case.node.inputs[operand])
    if known is None or len(known) != 1:
        return None
    return Span(known[0], known[0])
