"""What supports of masks say of reach, and how reaches follow each other."""

import numpy as np
import pytest

from compiler.derivation.dependence import EVERYWHERE, HERE, NOWHERE, Reach, hull, reach_of

ROWS, COLUMNS = np.indices((12, 12))


@pytest.mark.parametrize(
    ("support", "reach"),
    [
        (COLUMNS <= ROWS, Reach(-11, 0)),
        ((COLUMNS <= ROWS) & (COLUMNS > ROWS - 3), Reach(-2, 0)),
        (COLUMNS <= ROWS + 2, Reach(-11, 2)),
        ((COLUMNS <= ROWS) | (COLUMNS < 4), Reach(-11, 0, 4)),
        (COLUMNS // 3 <= ROWS // 3, Reach(-11, 2)),
        (COLUMNS < 0, NOWHERE),
    ],
    ids=["causal", "band", "ahead", "prefix", "chunks", "nothing"],
)
def test_what_a_mask_leaves_is_read_off(support: np.ndarray, reach: Reach) -> None:
    assert reach_of(support) == reach


def test_what_is_read_behind_another_adds_up() -> None:
    assert Reach(-3, 0).behind(Reach(-2, 0)) == Reach(-5, 0)
    assert Reach(-3, 0).behind(Reach(-2, 1)) == Reach(-5, 1)
    assert Reach(-9, 0, 4).behind(HERE) == Reach(-9, 0, 4)
    assert HERE.behind(Reach(-9, 0, 4)) == Reach(-9, 0, 4)
    assert NOWHERE.behind(HERE) == NOWHERE


def test_several_are_read_as_far_as_the_furthest() -> None:
    assert hull([Reach(-3, 0), Reach(-1, 2), NOWHERE]) == Reach(-3, 2)
    assert hull([]) == NOWHERE
    assert not EVERYWHERE.is_causal
    assert str(Reach(-3, 0, 4)) == "[-3, 0] and the first 4"
