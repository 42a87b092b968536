"""Layouts: neighbouring segments have one normal form."""

import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.layout import Segment, Side, joined

T, S = graphs.symbol("time"), graphs.symbol("late")
LEFT, RIGHT = Side.LEFT, Side.RIGHT


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([Segment(2), Segment(3)], "[5]"),
        ([Segment(T, RIGHT), Segment(3)], "[time + 3, right]"),
        ([Segment(1), Segment(T)], "[time + 1, left]"),
        ([Segment(T), Segment(1)], "[time, left] ++ [1]"),
        ([Segment(1), Segment(T, RIGHT)], "[1] ++ [time, right]"),
        ([Segment(T), Segment(S)], "[time, left] ++ [late, left]"),
        ([Segment(T, RIGHT), Segment(T - 1)], "[time, right] ++ [time - 1, left]"),
        ([Segment(T - 1, RIGHT), Segment(1), Segment(T - 1)], "[time, right] ++ [time - 1, left]"),
        ([Segment(T - 1, RIGHT), Segment(T)], "[time, right] ++ [time - 1, left]"),
        ([Segment(T + 2, RIGHT), Segment(T - 2)], "[time, right] ++ [time, left]"),
        ([Segment(T + 2, RIGHT), Segment(S)], "[time, right] ++ [late + 2, left]"),
        ([Segment(0), Segment(T)], "[time, left]"),
        ([Segment(0)], "[0]"),
    ],
)
def test_normal_form(parts: list[Segment], expected: str) -> None:
    (frames,) = joined(parts)
    assert str(frames) == expected


def test_which_end_is_padded() -> None:
    (suffix,), (prefix,), (gap,) = (
        joined([Segment(1), Segment(T)]),
        joined([Segment(T, RIGHT), Segment(1)]),
        joined([Segment(T), Segment(1)]),
    )
    assert suffix.is_suffix_padded and not suffix.is_prefix_padded  # type: ignore[union-attr]
    assert prefix.is_prefix_padded and not prefix.is_suffix_padded  # type: ignore[union-attr]
    assert not gap.is_suffix_padded and not gap.is_prefix_padded  # type: ignore[union-attr]
