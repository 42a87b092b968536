"""Proves how padding and batching act on comparisons and boolean logic, of data and of positions (rule EW5)."""

import math
from collections.abc import Callable

from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case, broadcast, read
from compiler.proof.facts.facts import VALID, Region, Verdict
from compiler.proof.facts.interval import ONE, TRUTH, ZERO, Interval
from compiler.proof.facts.length_data import lengths_alone, per_row
from compiler.proof.facts.positions import difference
from compiler.proof.facts.registry import Table
from compiler.proof.facts.transfer import stored

Decision = Callable[[Interval, Interval], tuple[bool, bool]]

DECISIONS: dict[str, Decision] = {
    "Equal": lambda a, b: (a.is_constant and a == b, a.high < b.low or b.high < a.low),
    "Greater": lambda a, b: (a.low > b.high, a.high <= b.low),
    "GreaterOrEqual": lambda a, b: (a.low >= b.high, a.high < b.low),
    "Less": lambda a, b: (a.high < b.low, a.low >= b.high),
    "LessOrEqual": lambda a, b: (a.high <= b.low, a.low > b.high),
}
"""(surely true, surely false) for exact contents."""

EXACT_BELOW = 2.0**53
"""Bounds of integers from here on are rounded."""


def comparison(case: Case) -> Verdict:
    """Judge a comparison; positions compared with positions or lengths are decided by region."""
    rank = len(case.out_dims())
    numbers = any(case.fact(operand).is_number for operand in (0, 1))
    if numbers and _by_position(case, VALID, rank) is None:
        alone = lengths_alone(case)
        if alone is not None:
            return alone
        per_row(case)
        numbers = False
    axes = broadcast(case, [0, 1], rank)

    def content(region: Region) -> Interval:
        decided = _by_position(case, region, rank)
        if decided is not None or numbers:
            return decided or TRUTH
        return _by_content(case, read(case, 0, region, rank), read(case, 1, region, rank))

    return case.verdict("EW5", "elementwise on equal layouts", case.output(axes, content), pointwise=True)


def _by_position(case: Case, region: Region, rank: int) -> Interval | None:
    """Return the truth that follows from the distance of two positions; None where it is not known."""
    apart = difference(case, region, rank)
    return None if apart is None else _decided(case.op, apart, ZERO)


def _by_content(case: Case, a: Interval, b: Interval) -> Interval:
    if a.nan or b.nan:
        return TRUTH
    if case.dtype().is_floating_point():
        a, b = _blurred(case, a), _blurred(case, b)
    elif max(a.magnitude, b.magnitude) >= EXACT_BELOW and (a.low == b.high or a.high == b.low):
        return TRUTH
    return _decided(case.op, a, b) or TRUTH


def _blurred(case: Case, x: Interval) -> Interval:
    """Widen bounds by one rounding step; a constant stays exact."""
    if x.is_constant:
        return x
    wider = stored(x, case.dtype())
    return Interval(math.nextafter(wider.low, -math.inf), math.nextafter(wider.high, math.inf))


def _decided(op: str, a: Interval, b: Interval) -> Interval | None:
    true, false = DECISIONS[op](a, b)
    return ONE if true else ZERO if false else None


def logic(case: Case) -> Verdict:
    """Judge And, Or, Xor."""
    alone = lengths_alone(case)
    if alone is not None:
        return alone
    per_row(case)
    rank = len(case.out_dims())
    axes = broadcast(case, [0, 1], rank)

    def content(region: Region) -> Interval:
        a, b = read(case, 0, region, rank), read(case, 1, region, rank)
        if case.op == "And":
            return Interval(min(a.low, b.low), min(a.high, b.high))
        if case.op == "Or":
            return Interval(max(a.low, b.low), max(a.high, b.high))
        return iv.constant(float(a.low != b.low)) if a.is_constant and b.is_constant else TRUTH

    return case.verdict("EW5", "elementwise on equal layouts", case.output(axes, content), pointwise=True)


COMPARISONS: Table = {
    **{("", op): comparison for op in DECISIONS},
    **{("", op): logic for op in ("And", "Or", "Xor")},
}
