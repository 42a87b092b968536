"""States without frames are read and given whole."""

from runtime_lite.states import FIXED


def test_all_of_a_state_is_read_and_all_of_it_written() -> None:
    assert range(9)[FIXED.unseen(9, 3)] == range(0)
    assert FIXED.moves(9, 3, 2) == ((slice(None), slice(None)),)
