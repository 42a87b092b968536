"""New frames lie behind the others; free slots are read."""

from runtime_lite.states import APPENDED


def test_frames_are_written_behind_those_that_are_valid() -> None:
    assert APPENDED.moves(9, 3, 2) == ((slice(3, 5), slice(2)),)
    assert range(9)[APPENDED.unseen(9, 3)] == range(0)
