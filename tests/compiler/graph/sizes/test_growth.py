"""Sizes are compared by value as far as it takes, and no further."""

import numpy as np
import pytest
import sympy

from compiler.graph.sizes.expressions import Dim, expression, symbol
from compiler.graph.sizes.growth import (
    agree,
    agree_up_to,
    function_of,
    grows_by,
    lengths_for,
    never_falls,
    never_negative,
    number,
    period_of,
    truncated,
    values_of,
)

TIME, BATCH = symbol("time"), symbol("batch")


def test_remainders_have_their_precedence() -> None:
    half = function_of(TIME / 2 - sympy.Mod(TIME, 2) / 2, [TIME])
    assert [half(length) for length in range(5)] == [0, 0, 1, 1, 2]


def test_functions_of_known_parts_only() -> None:
    with pytest.raises(ValueError, match="not known"):
        function_of(TIME + BATCH, [TIME])


def test_signs() -> None:
    assert never_negative(expression("time - 4*(time//4)"))
    assert not never_negative(expression("3 - time"))
    assert not never_negative(expression("time//4 - 1"))
    assert not never_negative(TIME + BATCH)  # of several lengths nothing is tried
    assert never_negative(3)


def test_growth() -> None:
    assert never_falls(3)
    assert never_falls(expression("(time - 3)//2"))
    assert not never_falls(-TIME)
    assert not never_falls(expression("batch - time"))


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("time + 3", 3),
        ("Min(9, time + 3)", 3),
        ("time + 3 - Max(0, time - 6)", 3),
        ("time", None),
        ("9", None),
        ("2*time + 3", None),
        ("batch + 3", None),
        ("time + batch", None),
    ],
)
def test_frames_that_a_call_adds(text: str, frames: int | None) -> None:
    assert grows_by(expression(text), "time") == frames


@pytest.mark.parametrize(
    ("text", "period"),
    [("time", 1), ("(time + 1)//2", 2), ("((time//2) + 1)//3 + time//4", 12), ("Min(time//5, 7)", 5)],
)
def test_periods(text: str, period: int) -> None:
    size = sympy.sympify(expression(text))
    assert period_of(size) == period
    values = values_of(size, TIME, np.arange(100, 100 + 3 * period))
    steps = values[period:] - values[:-period]
    assert len(set(steps.tolist())) == 1


@pytest.mark.parametrize("bend", [5000, 70_001])
def test_branches_that_part_far_out_are_told_apart(bend: int) -> None:
    assert not agree(expression(f"Min(time, {bend})"), TIME, TIME, 1)
    assert not agree(expression(f"Max(time - {bend}, 0)"), 0, TIME, 1)
    assert not never_falls(expression(f"time - 2*Max(time - {bend}, 0)"))
    assert not never_negative(expression(f"{bend} - time"))
    assert agree(expression(f"Max(time, {bend}) + Min(time, {bend})"), expression(f"time + {bend}"), TIME, 1)


def test_a_wave_that_begins_far_out_is_seen() -> None:
    assert not agree(expression("Max(time - 900, 0)//3"), expression("(Max(time - 900, 0) + 1)//3"), TIME, 1)


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        ("Min(9, time + 3)", "Min(9, Max(time, 0) + 3)", True),
        ("Min(9, time)", "Min(9, time + 1)", False),
        ("Min(9, time + 3)", "Min(5, time + 3)", False),
        ("Min(9, time + batch)", "Min(9, batch + Min(time, 9))", True),
        ("Min(9, time + batch)", "Min(9, time + batch//2)", False),
        ("Min(9, time + batch + chunk)", "Min(9, batch + Min(time, 9) + chunk)", False),  # two other names: not known
    ],
)
def test_sizes_of_two_names_up_to_a_last_value_of_one(a: str, b: str, is_same: bool) -> None:
    assert agree_up_to(expression(a), expression(b), TIME, 9) is is_same


def test_what_would_take_too_long_is_not_known() -> None:
    far = expression("(time + 1)//1000003")
    assert lengths_for((far,), 0) is None
    assert not never_negative(far) and not agree(far, expression("time//1000003"), TIME, 1)


def test_quotients_are_exact_far_out() -> None:
    third: Dim = sympy.floor(TIME / 3 + sympy.Rational(2, 3))
    lengths = np.array([1, 2**50, 2**50 + 1])
    assert values_of(third, TIME, lengths).tolist() == [(int(n) + 2) // 3 for n in lengths]


@pytest.mark.parametrize("top", [-7, -2, -1, 0, 1, 7])
def test_a_quotient_of_a_number_by_a_length_rounds_towards_zero(top: int) -> None:
    quotient = truncated(sympy.Integer(top), sympy.sympify(TIME))
    assert quotient is not None
    lengths = np.arange(1, 12)
    assert values_of(quotient, TIME, lengths).tolist() == [int(top / int(length)) for length in lengths]


@pytest.mark.parametrize("bottom", [2, 3])
@pytest.mark.parametrize("top", ["-time", "3 - time", "9 - 2*time", "1 - (time + 1)//2", "time//2"])
def test_a_quotient_rounds_towards_zero_on_both_sides_of_zero(top: str, bottom: int) -> None:
    dividend = sympy.sympify(expression(top))
    quotient = truncated(dividend, sympy.Integer(bottom))
    assert quotient is not None
    lengths = np.arange(1, 30)
    assert values_of(quotient, TIME, lengths).tolist() == [
        int(int(dividend.subs(TIME, int(length))) / bottom) for length in lengths
    ]


def test_a_size_is_a_number_at_lengths() -> None:
    time, later = symbol("time"), symbol("later")
    assert number(expression("time//2 + 1"), {time: 5, later: 7}) == 3 and number(4, {}) == 4
    with pytest.raises(ValueError, match=r"2\.5"):
        number(time / 2, {time: 5})
    with pytest.raises(ValueError, match="later is not known"):
        number(later, {time: 5})
