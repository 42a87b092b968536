"""Classes: the share of equal entries, and where the first other one is."""

import numpy as np
import pytest

from compiler.calib.classes import Agreement, are_classes


@pytest.mark.parametrize(("dtype", "expected"), [("int64", True), ("uint8", True), ("bool", True), ("float32", False)])
def test_whole_numbers_and_truths_are_classes(dtype: str, expected: bool) -> None:
    assert are_classes(np.zeros(2, dtype)) is expected


def test_the_share_of_equal_entries_and_the_first_other_one() -> None:
    right = np.array([[3, 7, 412, 5]], np.int64)
    found = Agreement().plus(right, right, 0).plus(np.array([[3, 7, 97, 6]], np.int64), right, 1)
    assert (found.compared, found.differing, found.equal) == (8, 2, 0.75)
    assert (found.first, found.first_step) == ("97 at [0, 2], not 412", 1)
    assert found.holds(0.75) and not found.holds(0.76)
    assert found.used(0.5) == 0.5 and found.used(1.0) == float("inf")


def test_another_shape_differs_everywhere() -> None:
    found = Agreement().plus(np.array([True, False]), np.array([True, False, True]), 4)
    assert (found.compared, found.differing, found.first, found.first_step) == (3, 3, "shape [2], not [3]", 4)
    assert not Agreement().plus(np.zeros(1, np.int64), np.zeros(0, np.int64), 0).holds(0.99)


def test_nothing_to_compare_and_nothing_that_differs_hold() -> None:
    alike = Agreement().plus(np.array(5), np.array(5), 0)
    for each in (Agreement(), alike):
        assert each.equal == 1.0 and each.used(1.0) == 0.0 and each.holds(1.0) and each.first == ""
