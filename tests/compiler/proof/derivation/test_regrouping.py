"""regrouping: time through reshapes."""

import pytest
import sympy

from compiler.graph.axis_map import NotMapped
from compiler.graph.model import Dim, symbol
from compiler.proof.derivation.regrouping import regrouped

BATCH, TIME = symbol("batch"), symbol("time")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([(BATCH,), (TIME,), (8,)], [BATCH, TIME, 2, 4], {1: (1, (TIME,))}),
        ([(BATCH,), (2,), (TIME,), (4,)], [2 * BATCH, TIME, 4], {2: (1, (TIME,))}),
        ([(BATCH,), (TIME,), (8,)], [BATCH * TIME, 8], {1: (0, (BATCH, TIME))}),
        ([(BATCH, TIME), (8,)], [BATCH, TIME, 8], {0: (1, (TIME,))}),
        ([(TIME,), (4 * BATCH,), (2,)], [TIME * BATCH, 8], {0: (0, (TIME, BATCH))}),
        ([(TIME, BATCH), (8,)], [TIME, 4 * BATCH, 2], {0: (0, (TIME,))}),
        ([(TIME + 3,), (4 * BATCH,), (2,)], [TIME * BATCH + 3 * BATCH, 8], {0: (0, (TIME + 3, BATCH))}),
        ([(TIME,)], [1, TIME, 1], {0: (1, (TIME,))}),
        ([(TIME,), (TIME,)], [1, TIME, TIME], {0: (1, (TIME,)), 1: (2, (TIME,))}),
    ],
)
def test_time_is_followed_through_a_reshape(
    before: list[tuple[Dim, ...]], after: list[Dim], found: dict[int, tuple[int, tuple[Dim, ...]]]
) -> None:
    assert regrouped(before, after, TIME) == found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(TIME,), (8,)], [8, TIME]),
        ([(TIME,), (TIME,)], [TIME * TIME]),
        ([(TIME,)], [sympy.floor(TIME / 2), 2]),
    ],
    ids=["turned", "two merged", "parted"],
)
def test_a_reshape_that_moves_frames_is_not_followed(before: list[tuple[Dim, ...]], after: list[Dim]) -> None:
    with pytest.raises(NotMapped):
        regrouped(before, after, TIME)
