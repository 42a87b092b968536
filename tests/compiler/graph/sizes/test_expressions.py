"""Sizes: one spelling per size, with the value it had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.graph.sizes.expressions import expression, mentions, symbol, written
from runtime_lite.format.formula import parse_formula

EQUAL = [
    ("floor(time/2 - 1/2) + 1", "floor(time/2 + 1/2)"),
    ("floor(floor(time/5)/2)", "floor(time/10)"),
    ("floor(floor(time/5)/2 - 3/2) + 1", "floor((floor(time/5) - 1)/2)"),
    ("floor((time + Mod(3*time, 4))/4)", "time - floor(3*time/4)"),
    ("time - Mod(time, 8)", "8*floor(time/8)"),
    ("ceiling(time/2)", "floor((time + 1)/2)"),
    ("(time - 1)//2", "floor(time/2 - 1/2)"),
    ("2*(time + 1) - 2", "2*time"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_sizes_are_spelled_alike(one: str, other: str) -> None:
    assert expression(one) == expression(other)


@given(st.integers(1, 7), st.integers(-9, 9), st.integers(1, 7), st.integers(-9, 9), st.integers(30, 90))
def test_the_normal_form_has_the_value_of_the_text(a: int, b: int, c: int, d: int, time: int) -> None:
    text = f"floor((floor((time + {b})/{a}) + {d})/{c})"
    found = expression(text)
    assert found.subs(symbol("time"), time) == ((time + b) // a + d) // c  # type: ignore[union-attr]


def test_the_lower_end_of_a_number_is_part_of_it() -> None:
    assert [expression("time - Max(0, time - 2)").subs(symbol("time"), time) for time in (1, 2, 5)] == [1, 2, 2]  # type: ignore[union-attr]


def test_numbers_and_names() -> None:
    assert expression("7") == 7
    assert expression("6//2") == 3
    assert expression("some name") == symbol("some name")
    assert mentions(expression("cache + 16"), "cache")
    assert not mentions(16, "cache")


@pytest.mark.parametrize(
    "text",
    [
        "2*floor(chunk/2)",
        "3*floor((chunk + 1)/2) + 2",
        "floor(chunk/2)*floor(past/3)",
        "floor(chunk/(2*past + 2))",
        "floor(chunk/(2*past*chunk + 2))",
        "past - Mod(chunk, 3)",
        "2*Mod(chunk, 4) - Mod(past, 2)",
        "past - 2*floor(chunk/2)",
        "Max(past - Mod(chunk, 2), 3*floor(chunk/3))",
        "2*floor(chunk/2) - floor(past/2)",
    ],
)
def test_what_is_written_for_the_runtime_has_the_value_of_the_size(text: str) -> None:
    """Regression: of `2*floor(chunk/2)` the runtime read `2*chunk//2`, all frames of a chunk."""
    size = expression(text)
    assert not isinstance(size, int)
    formula = parse_formula(written(size))
    for chunk, past in ((0, 0), (1, 3), (5, 2), (7, 7), (12, 1)):
        expected = size.subs({symbol("chunk"): chunk, symbol("past"): past})
        assert formula.value({"chunk": chunk, "past": past}) == expected
