"""Intervals hold what the operation gives for any members, NaN and infinities included."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from compiler.proof.facts import interval as iv
from compiler.proof.facts import transfer
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval

INTERVALS = [
    ZERO, Interval(1, 1), Interval(-2, 3), Interval(0, math.inf), Interval(-math.inf, -1), ANYTHING, Interval(2, 5),
]  # fmt: skip
OPERATIONS: dict[str, tuple[Callable[[Interval, Interval], Interval], Callable[[float, float], float]]] = {
    "add": (iv.add, lambda a, b: a + b),
    "multiply": (iv.multiply, lambda a, b: a * b),
    "maximum": (transfer.maximum, lambda a, b: float(np.maximum(a, b))),
    "minimum": (transfer.minimum, lambda a, b: float(np.minimum(a, b))),
    "maximum that passes NaN over": (transfer.maximum, lambda a, b: float(np.fmax(a, b))),
    "minimum that passes NaN over": (transfer.minimum, lambda a, b: float(np.fmin(a, b))),
}


def members(content: Interval) -> list[float]:
    """The worst members of an interval."""
    return [
        content.low,
        content.high,
        *([math.nan] if content.nan else []),
        *([0.0] if content.low <= 0 <= content.high else []),
    ]


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_result_covers_every_pair_of_members(name: str) -> None:
    operation, plain = OPERATIONS[name]
    for a, b in itertools.product(INTERVALS, INTERVALS):
        result = operation(a, b)
        for x, y in itertools.product(members(a), members(b)):
            value = plain(x, y)
            assert result.nan if math.isnan(value) else result.low <= value <= result.high, (a, b, x, y)


def test_zero_times_an_infinity_may_be_nan() -> None:
    assert iv.multiply(ZERO, Interval(0, math.inf)).nan
    assert iv.multiply(ZERO, Interval(-1e30, 1e30)) == ZERO


def test_bounds_near_the_largest_number_count_as_infinite() -> None:
    assert not iv.multiply(Interval(0, 1e20), Interval(0, 1e20)).is_finite
    assert Interval(-3.4e38, -3.4e38).is_constant


def test_the_reciprocal_of_what_may_be_zero_is_unbounded() -> None:
    assert transfer.reciprocal(Interval(-1, 1)) == Interval(-math.inf, math.inf)
    assert transfer.reciprocal(ANYTHING) == ANYTHING
    assert transfer.reciprocal(Interval(2, 4)) == Interval(0.25, 0.5)


def test_constants_are_read_from_arrays() -> None:
    assert iv.of_array(np.array([1.0, np.nan])) == Interval(1.0, 1.0, True)
    assert iv.of_array(np.array([True, False])) == Interval(0.0, 1.0)
    assert iv.hull(ZERO, Interval(2, 3)) == Interval(0, 3)


def test_text_says_what_may_lie_there() -> None:
    assert [str(each) for each in (ZERO, Interval(0, 1), ANYTHING)] == ["constant(0)", "finite[0, 1]", "anything"]
