"""States without frames are read and given whole."""

from runtime_lite.states import FIXED


def test_all_of_a_state_is_read_and_none_of_it_written_frame_by_frame() -> None:
    assert range(9)[FIXED.unseen(9, 3)] == range(0)
    assert FIXED.is_given_whole and FIXED.moves(9, 3, 2) == ()
