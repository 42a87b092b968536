"""What supports of masks say of reach, and how reaches follow each other."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.proof.derivation.dependence import (
    EVERYWHERE,
    HERE,
    NOWHERE,
    Along,
    Reach,
    at_rate,
    chunk_of,
    frames_kept,
    hull,
    joined_factors,
    reach_of,
)

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


@pytest.mark.parametrize(
    ("support", "chunk", "beyond"),
    [
        (COLUMNS // 3 <= ROWS // 3, 3, 0),
        (COLUMNS // 3 <= ROWS // 3, 6, 0),
        (COLUMNS // 3 <= ROWS // 3, 2, 2),
        (COLUMNS <= ROWS + 1, 3, 1),
        ((COLUMNS + 1) // 3 <= (ROWS + 1) // 3, 3, 2),
    ],
    ids=["own", "multiple", "other", "steady", "shifted"],
)
def test_what_is_read_behind_a_chunk_is_counted_from_its_end(support: np.ndarray, chunk: int, beyond: int) -> None:
    found = reach_of(support, chunk)
    assert found.beyond == beyond
    assert found.is_causal == (beyond == 0)
    assert found.high == (COLUMNS - ROWS)[support].max()


def test_layers_under_masks_of_whole_chunks_look_ahead_no_further_than_one() -> None:
    within, behind = reach_of(COLUMNS // 4 == ROWS // 4, 4), Reach(-2, 0)
    assert within == Reach(-3, 3, inside=3)
    assert within.behind(within, 4) == Reach(-6, 3, inside=3)
    assert behind.behind(within, 4) == Reach(-5, 3, inside=3)
    assert Reach(0, 1).behind(within, 4).beyond == 4


def test_reaches_that_follow_each_other_hold_what_is_read() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        chunk = int(random.integers(1, 5))
        one, other = ((random.integers(-2, 4, 12) > COLUMNS - ROWS) & (random.random((12, 12)) < 0.3) for _ in "ab")
        both = (one.astype(int) @ other.astype(int)) > 0
        read, told = reach_of(both, chunk), reach_of(one, chunk).behind(reach_of(other, chunk), chunk)
        if read == NOWHERE or told.first or read.first:
            continue
        assert told.low <= read.low
        assert told.high >= read.high
        assert told.beyond >= read.beyond


def test_chunks_are_the_shortest_that_all_masks_keep_to() -> None:
    masks = [COLUMNS // each <= ROWS // each for each in (2, 3)]
    assert chunk_of(masks[:1]) == 2
    assert chunk_of(masks) == 6
    assert chunk_of([COLUMNS <= ROWS + 1]) is None
    assert chunk_of([(COLUMNS + 1) // 3 <= (ROWS + 1) // 3]) is None
    assert chunk_of([]) is None


@pytest.mark.parametrize(
    ("support", "chunk", "kept"),
    [
        ((COLUMNS <= ROWS) & (COLUMNS > ROWS - 3), 1, 2),
        (COLUMNS == ROWS, 1, 0),
        (COLUMNS == ROWS - 4, 1, 4),
        ((COLUMNS // 3 <= ROWS // 3) & (COLUMNS // 3 >= ROWS // 3 - 2), 3, 6),
        ((COLUMNS <= ROWS) & (COLUMNS > ROWS - 3), 4, 2),
        (COLUMNS <= ROWS, 1, 11),
        (COLUMNS < 0, 1, 0),
    ],
    ids=["band", "own", "one", "chunks", "band_in_chunks", "causal", "nothing"],
)
def test_as_many_frames_are_kept_as_later_rows_read(support: np.ndarray, chunk: int, kept: int) -> None:
    assert frames_kept(support, chunk) == kept


def test_an_axis_holds_as_many_entries_of_each_frame_as_its_rate() -> None:
    frames, rows = graphs.symbol("time"), graphs.symbol("batch")
    assert [at_rate(size, frames) for size in (frames, 6 * frames, 6 * frames + 1, frames * rows, frames / 2, 6)] == [
        (frames,), (frames, 6), None, None, None, None,
    ]  # fmt: skip
    assert joined_factors((rows, frames, 2, 3)) == (rows, frames, 6)
    assert Along((frames,), HERE).rate == 1
    assert Along((frames, 6), HERE).rate == 6
    assert Along((rows, frames), HERE).rate is None
    assert Along((frames + 3,), HERE, 3).rate is None
