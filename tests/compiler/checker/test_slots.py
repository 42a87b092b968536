"""Slots of a row, and which of them are valid."""

import numpy as np
import pytest

from compiler.checker.graph import Rejected
from compiler.checker.slots import Layout, Lengths, size_of

LENGTHS = Lengths({"batch": 2, "time": 5}, [{"batch": 1, "time": 2}, {"batch": 1, "time": 4}])
FACT = {
    "axes": {"0": [{"rows": "batch"}, {"plain": "2"}], "1": [{"frames": [["time", "right"], ["time - 1", "left"]]}]},
    "contents": [[[], -1.0, 1.0, False], [[1], 0.0, 0.0, False]],
}


def test_rows_are_found_in_merged_axes_and_frames_in_segments() -> None:
    layout = Layout(FACT, ["2*batch", "2*time - 1"], LENGTHS, "batch")
    assert layout.shape == [4, 9] and layout.padded == [1]
    mine, valid = layout.along(0, 1)
    assert mine.tolist() == valid.tolist() == [False, False, True, True]
    mine, valid = layout.along(1, 0)
    assert mine.all() and valid.nonzero()[0].tolist() == [3, 4, 5]
    array = np.arange(36).reshape(4, 9)
    assert array[layout.chosen(0)].tolist() == [[3, 4, 5], [12, 13, 14]]
    regions = dict(layout.regions(0))
    assert array[regions[frozenset({1})]].tolist() == [[0, 1, 2, 6, 7, 8], [9, 10, 11, 15, 16, 17]]
    assert array[regions[frozenset()]].tolist() == [[3, 4, 5], [12, 13, 14]]
    assert layout.content(frozenset({1})) == (0.0, 0.0, False)
    assert layout.content(frozenset({0}))[2], "what is not said may be anything"


def test_unbroken_entries_are_a_view_and_none_are_none() -> None:
    layout = Layout(FACT, ["2*batch", "2*time - 1"], LENGTHS, "batch")
    array = np.zeros(layout.shape)
    array[layout.chosen(1)] = 1.0
    assert np.shares_memory(array, array[layout.chosen(1)]) and array.sum() == 2 * 7
    full = Layout(FACT, ["2*batch", "2*time - 1"], Lengths({"batch": 1, "time": 1}, [{"batch": 1, "time": 1}]), "batch")
    assert np.zeros(full.shape)[dict(full.regions(0))[frozenset({1})]].shape == (2, 0)


def test_more_entries_than_slots_are_rejected() -> None:
    short = Lengths({"batch": 2, "time": 3}, LENGTHS.true)
    with pytest.raises(Rejected, match="3 slots for 4 entries"):
        Layout(FACT, ["2*batch", "2*time - 1"], short, "batch").along(1, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("floor(time/2) + 1", 3), ("Max(0, time - 9)", 0), ("-(-time//2)", 3), ("Mod(time, 3)", 2), ("7", 7)],
)
def test_sizes_are_arithmetic_on_axis_names(text: str, value: int) -> None:
    assert size_of(text, {"time": 5}) == value


@pytest.mark.parametrize("text", ["other", "__import__('os')", "time.real", "f(time)"])
def test_anything_else_is_rejected(text: str) -> None:
    with pytest.raises(Rejected, match="no arithmetic"):
        size_of(text, {"time": 5})
