"""Bounds of what an entry may hold contain what arithmetic makes of any number within the bounds of its operands."""

import itertools
import math

import numpy as np
import pytest

from compiler.proof.derivation.spans import (
    LOW,
    ONE,
    RULES,
    SCORE,
    TRUTH,
    UNKNOWN,
    ZERO,
    Span,
    cast,
    hull,
    of_data,
    rule_of,
    weighted,
)

SPANS = [ZERO, ONE, TRUTH, Span(-3.0, 2.0), Span(-1e9, -1e9), Span(-1e9, 0.0), Span(-math.inf, -math.inf), UNKNOWN]

ARITHMETIC = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Less": np.less,
    "LessOrEqual": np.less_equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Equal": np.equal,
}  # fmt: skip


def numbers_in(span: Span) -> list[float]:
    middle = [-5e8, -3.0, -0.5, 0.0, 0.5, 1.0, 7e7]
    return [span.low, span.high, *(each for each in middle if span.low <= each <= span.high)]


@pytest.mark.parametrize("name", ARITHMETIC)
def test_results_lie_within_bounds(name: str) -> None:
    for first, second in itertools.product(SPANS, repeat=2):
        found = RULES[name](first, second)
        for left, right in itertools.product(numbers_in(first), numbers_in(second)):
            with np.errstate(all="ignore"):
                number = float(ARITHMETIC[name](left, right))
            if not math.isnan(number) and math.isfinite(left) and math.isfinite(right):
                assert found.low <= number <= found.high, (first, second, left, right)


def test_scores_are_no_more_than_added() -> None:
    assert RULES["Add"](SCORE, Span(-1e9, 0.0)) == Span(-1e9, 0.0, is_scored=True)
    assert RULES["Mul"](SCORE, Span(-1e9, -1e9)) == UNKNOWN
    assert RULES["Mul"](Span(-1e9, -1e9, is_scored=True), Span(0.5, 0.5)) == Span(-5e8, -5e8, is_scored=True)
    assert RULES["Mul"](Span(-1e9, -1e9, is_scored=True), SCORE) == UNKNOWN
    assert RULES["Mul"](ZERO, SCORE) == ZERO
    assert RULES["Mul"](ZERO, Span(-math.inf, 0.0)) == UNKNOWN
    assert RULES["Less"](SCORE, ONE) == TRUTH


def test_truths_choose() -> None:
    assert RULES["Where"](ONE, SCORE, ZERO) == SCORE
    assert RULES["Where"](ZERO, SCORE, ONE) == ONE
    assert RULES["Where"](TRUTH, Span(-1e9, -1e9), SCORE) == Span(-1e9, 0.0, is_scored=True)
    assert RULES["Not"](TRUTH) == TRUTH
    assert RULES["And"](TRUTH, ZERO) == ZERO
    assert RULES["Or"](TRUTH, ONE) == ONE
    assert [RULES["Xor"](*pair) for pair in ((ONE, ONE), (ONE, ZERO), (TRUTH, ONE))] == [ZERO, ONE, TRUTH]


def test_types_keep_what_they_hold() -> None:
    assert cast(Span(-1e9, -1e9), to_truth=False, to_whole=True) == UNKNOWN
    assert cast(Span(0.5, 3.0), to_truth=True, to_whole=False) == ONE
    assert cast(SCORE, to_truth=True, to_whole=False) == TRUTH
    assert cast(Span(-1e9, 0.0), to_truth=False, to_whole=False) == Span(-1e9, 0.0)


def test_what_no_rule_follows_may_hide_where_large_numbers_are_in_it() -> None:
    assert of_data([SCORE, ONE], is_truth=False) == SCORE
    assert of_data([Span(LOW, 0.0)], is_truth=False) == UNKNOWN
    assert of_data([UNKNOWN], is_truth=True) == TRUTH
    assert hull([SCORE, ONE]) == Span(0.0, 1.0, is_scored=True)
    assert weighted(Span(LOW, LOW)) == ZERO
    assert weighted(Span(LOW, 0.0)) == TRUTH


@pytest.mark.parametrize("second", [Span(40, 40), Span(-7, -3), Span(49, 49)])
@pytest.mark.parametrize("first", [Span(9, math.inf), Span(-49, -9), Span(-3, 98), Span(49, 49)])
def test_quotients_of_whole_numbers_have_no_rest(first: Span, second: Span) -> None:
    rule = rule_of("Div", is_whole=True)
    assert rule is not None
    found = rule(first, second)
    for a in range(int(first.low), int(min(first.high, 100)) + 1):
        for b in range(int(second.low), int(second.high) + 1):
            assert found.low <= math.trunc(a / b) <= found.high, (a, b)
    assert rule_of("Div", is_whole=False) is RULES["Div"]
    assert rule_of("Conv", is_whole=True) is None
