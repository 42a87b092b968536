"""Windows have their newest frame in the last slot and are given whole."""

from runtime_lite.states import WINDOW


def test_slots_in_front_of_the_frames_are_not_read() -> None:
    assert WINDOW.is_given_whole
    assert list(range(9)[WINDOW.unseen(9, 3)]) == [0, 1, 2, 3, 4, 5]
    assert WINDOW.oldest(9, 3) == 6
