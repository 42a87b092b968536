"""Bounds one entry of a mask or of masked attention scores: an interval, and whether a score is added to it.

    Where(tokens == 0, -1e9, scores)      -1e9 .. 0, with a score
    mask * scores, the mask 0             0
    mask * scores, the mask 1             0, with a score

A score is a number that data decide. It is taken to be finite, and to be small beside a number that hides, so that it
counts as 0 in a sum but not in a product.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

LOW = -1.0e4
"""A score of this or less is hidden by a softmax beside one of 0: its weight is exactly zero."""

EXACT_IN_EVERY_TYPE = 100
"""Whole numbers up to here are the same in every type of numbers."""


@dataclasses.dataclass(frozen=True)
class Span:
    """The numbers that an entry may hold; truths are 0 and 1.

    Attributes:
        low: the least; -inf also where no bound is known.
        high: the largest; inf also where no bound is known.
        is_scored: whether a score is added.
    """

    low: float
    high: float
    is_scored: bool = False

    @property
    def hides(self) -> bool:
        """Whether a softmax gives no weight to an entry of such a score."""
        return self.high <= LOW

    @property
    def is_small(self) -> bool:
        """Whether every value is within the range that scores may have."""
        return max(abs(self.low), abs(self.high)) < -LOW

    @property
    def is_true(self) -> bool:
        """Whether the values are certain to cast to true."""
        return not self.is_scored and (self.low > 0 or self.high < 0)


ZERO, ONE, TRUTH = Span(0.0, 0.0), Span(1.0, 1.0), Span(0.0, 1.0)
SCORE = Span(0.0, 0.0, is_scored=True)
UNKNOWN = Span(-math.inf, math.inf)


def hull(spans: Iterable[Span]) -> Span:
    """Return the interval of an entry that lies in one of several intervals."""
    each = list(spans)
    return Span(min(s.low for s in each), max(s.high for s in each), any(s.is_scored for s in each))


def _bounded(numbers: Iterable[float], is_scored: bool) -> Span:
    """Return the smallest interval that contains numbers; one without bounds where a number is NaN."""
    found = list(numbers)
    return UNKNOWN if any(map(math.isnan, found)) else Span(min(found), max(found), is_scored)


def _added(first: Span, second: Span) -> Span:
    if UNKNOWN in (first, second):
        return UNKNOWN
    return _bounded((first.low + second.low, first.high + second.high), first.is_scored or second.is_scored)


def _negated(span: Span) -> Span:
    return Span(-span.high, -span.low, span.is_scored)


def _multiplied(first: Span, second: Span) -> Span:
    if ZERO in (first, second):
        other = second if first == ZERO else first
        return ZERO if other == UNKNOWN or other.low > -math.inf else UNKNOWN  # 0 times infinity is no number
    is_scored = first.is_scored or second.is_scored
    of_scores = [each for each in (first, second) if each.is_scored]
    factors = [each for each in (first, second) if not each.is_scored]
    if is_scored and not all(each.is_small for each in factors or of_scores):
        return UNKNOWN
    return _bounded((a * b for a in (first.low, first.high) for b in (second.low, second.high)), is_scored)


def _divided(first: Span, second: Span) -> Span:
    if second.is_true:
        return _multiplied(first, Span(1 / second.high, 1 / second.low))
    return ZERO if first == ZERO else SCORE if first.is_small else UNKNOWN


def _divided_whole(first: Span, second: Span) -> Span:
    """Return the interval of an integer quotient, truncated towards zero."""
    if not second.is_true:
        return _divided(first, second)
    quotients = [a / b for a in (first.low, first.high) for b in (second.low, second.high)]
    return _bounded((each if math.isinf(each) else float(math.trunc(each)) for each in quotients), first.is_scored)


def _largest(*spans: Span) -> Span:
    return Span(max(s.low for s in spans), max(s.high for s in spans), any(s.is_scored for s in spans))


def _least(*spans: Span) -> Span:
    return Span(min(s.low for s in spans), min(s.high for s in spans), any(s.is_scored for s in spans))


def _clipped(span: Span, *bounds: Span) -> Span:
    at_least = _largest(span, *bounds[:1])
    return _least(at_least, *bounds[1:])


def _chosen(condition: Span, first: Span, second: Span) -> Span:
    if condition.is_true:
        return first
    return second if condition == ZERO else hull((first, second))


def _as_truth(span: Span) -> Span:
    return ONE if span.is_true else ZERO if span == ZERO else TRUTH


def _either(first: Span, second: Span) -> Span:
    if TRUTH in (first, second):
        return TRUTH
    return ZERO if first == second else ONE


def _compared(below: bool, equal: bool) -> Callable[[Span, Span], Span]:
    """Return the rule of a comparison.

    Args:
        below: whether it holds where the first operand is less.
        equal: whether it holds where both are equal.
    """

    def rule(first: Span, second: Span) -> Span:
        if first.is_scored or second.is_scored:
            return TRUTH
        if first.high < second.low:
            return ONE if below else ZERO
        if first.low > second.high:
            return ZERO
        if first.low == first.high == second.low == second.high:
            return ONE if equal else ZERO
        if first.high <= second.low and below and equal:
            return ONE
        return ZERO if first.low >= second.high and below and not equal else TRUTH

    return rule


def _swapped(rule: Callable[[Span, Span], Span]) -> Callable[[Span, Span], Span]:
    return lambda first, second: rule(second, first)


def _summed(*spans: Span) -> Span:
    total = spans[0]
    for each in spans[1:]:
        total = _added(total, each)
    return total


Rule: TypeAlias = Callable[..., Span]

RULES: Mapping[str, Rule] = {
    "Add": _added,
    "And": _least,
    "Clip": _clipped,
    "Div": _divided,
    "Equal": _compared(below=False, equal=True),
    "Greater": _swapped(_compared(below=True, equal=False)),
    "GreaterOrEqual": _swapped(_compared(below=True, equal=True)),
    "Identity": lambda span: span,
    "Less": _compared(below=True, equal=False),
    "LessOrEqual": _compared(below=True, equal=True),
    "Max": _largest,
    "Min": _least,
    "Mul": _multiplied,
    "Neg": _negated,
    "Not": lambda span: _added(ONE, _negated(span)),
    "Or": _largest,
    "Sub": lambda first, second: _added(first, _negated(second)),
    "Sum": _summed,
    "Where": _chosen,
    "Xor": _either,
}
"""What an entry may hold that is computed of one entry of each operand."""


def rule_of(op_type: str, *, is_whole: bool) -> Rule | None:
    """Return the rule that maps the intervals of operands to that of the result; None where there is none.

    Args:
        op_type: the operator.
        is_whole: whether the result is a whole number.
    """
    return _divided_whole if is_whole and op_type == "Div" else RULES.get(op_type)


def cast(span: Span, *, to_truth: bool, to_whole: bool) -> Span:
    """Return the interval of an entry after a Cast.

    Args:
        span: interval of the entry.
        to_truth: whether the type is boolean.
        to_whole: whether the type is an integer, which may wrap around.
    """
    if to_truth:
        return _as_truth(span)
    if to_whole and max(abs(span.low), abs(span.high)) > EXACT_IN_EVERY_TYPE:
        return UNKNOWN
    return Span(float(math.floor(span.low)), float(math.ceil(span.high)), span.is_scored) if to_whole else span


def weighted(span: Span) -> Span:
    """Return the interval of the weight that a softmax gives an entry, in a row with a visible score."""
    return ZERO if span.hides else TRUTH


def of_data(operands: Iterable[Span], *, is_truth: bool) -> Span:
    """Return the interval of data that no rule covers: a score, or unbounded where an operand may exceed one.

    Args:
        operands: intervals of the values that the entry is computed from.
        is_truth: whether the entry is boolean.
    """
    if is_truth:
        return TRUTH
    return SCORE if all(each.is_small for each in operands) else UNKNOWN
