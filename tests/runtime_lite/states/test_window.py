"""Windows have their newest frame in the last slot and are given whole."""

from runtime_lite.states import WINDOW


def test_slots_in_front_of_the_frames_are_not_read_and_all_of_them_written() -> None:
    assert list(range(9)[WINDOW.unseen(9, 3)]) == [0, 1, 2, 3, 4, 5]
    assert WINDOW.moves(9, 3, 2) == ((slice(None), slice(None)),)
