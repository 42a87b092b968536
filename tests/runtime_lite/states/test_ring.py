"""New frames take the slots of the oldest ones, around the end of the slots."""

import numpy as np

from runtime_lite.states import RING


def test_frames_are_written_on_from_the_last_slot_to_the_first() -> None:
    assert RING.moves(9, 3, 2) == ((slice(3, 5), slice(0, 2)),)
    assert RING.moves(9, 8, 3) == ((slice(8, 9), slice(0, 1)), (slice(0, 2), slice(1, 3)))
    assert RING.moves(9, 9 + 8, 1) == ((slice(8, 9), slice(0, 1)),)
    assert RING.moves(4, 2, 9) == ((slice(3, 4), slice(5, 6)), (slice(0, 3), slice(6, 9)))


def test_a_length_says_how_many_there_are_and_where_the_oldest_lies() -> None:
    lengths = RING.after(5, np.array([0, 3, 4, 5, 9]), 2)
    assert lengths.tolist() == [2, 5, 6, 7, 6]
    assert RING.valid(5, lengths).tolist() == [2, 5, 5, 5, 5]
    assert [RING.oldest(5, each) for each in lengths.tolist()] == [0, 0, 1, 2, 1]
