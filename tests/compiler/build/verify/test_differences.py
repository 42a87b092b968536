"""The comparison itself: what it must see, and what it must not complain about."""

import numpy as np
import pytest

from compiler.build.verify.differences import Difference, Tally, compare, max_abs_difference, worst_of
from compiler.graph.runners.choose import runner_of
from compiler.recipe.gates import LossyTolerance, Tolerance
from tests.kit.growing_stream import padded, steps_of
from tests.kit.models.tiny_task import one_recording

CLOSE = Tolerance(max_abs=1e-5)

NAN, INF = float("nan"), float("inf")


def test_static_graph_is_compared_on_outputs_and_states() -> None:
    lowered = padded()
    differences = compare(lowered, runner_of(lowered), steps_of(one_recording(2, 6)))
    assert {d.tensor for d in differences} == {"logits", "keys"}
    assert all(d.steps == 6 and d.holds(Tolerance(max_abs=1e-6)) for d in differences)


@pytest.mark.parametrize(
    ("got", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([NAN], [NAN], 0.0),
        ([INF], [INF], 0.0),
        ([INF], [-INF], INF),
        ([NAN], [1.0], INF),
        ([1.0], [NAN], INF),
        ([1.0], [1.0, 1.0], INF),
        ([], [], 0.0),
        (3.0, 1.0, 2.0),
    ],
)
def test_difference_of_arrays(got: object, expected: object, difference: float) -> None:
    assert max_abs_difference(np.array(got, np.float32), np.array(expected, np.float32)) == difference


def test_limit_grows_with_the_reference_and_nan_never_holds() -> None:
    small, large = Difference("a", 1, 2e-5, 0.1, 0, 0, 0), Difference("b", 1, 2e-5, 4.0, 0, 0, 0)
    assert not small.holds(CLOSE)
    assert large.holds(CLOSE)
    assert not Difference("c", 1, NAN, 1.0, 0, 0, 0).holds(Tolerance(max_abs=1e30))
    assert worst_of([large, small], CLOSE) is small


def test_noise_is_held_to_its_limit_as_well() -> None:
    tally = Tally("y")
    tally.add(np.array([1.1, -2.0], np.float32), np.array([1.0, -2.0], np.float32))
    tally.add(np.array([2.0, 0.0], np.float32), np.array([2.0, 0.0], np.float32))
    found = tally.difference()
    assert found.sqnr_db is not None and abs(found.sqnr_db - 10 * np.log10(9 / 0.01)) < 1e-5
    assert found.holds(Tolerance(max_abs=0.1, sqnr_db=29.5))
    assert not found.holds(Tolerance(max_abs=0.1, sqnr_db=29.6))
    assert "29.5 dB" in found.exceeded(Tolerance(max_abs=0.1, sqnr_db=40.0))
    assert "difference of 0.1 " in found.exceeded(Tolerance(max_abs=0.01, sqnr_db=40.0))


def classes_of(*steps: tuple[list[int], list[int]], dtype: str = "int64") -> Difference:
    tally = Tally("labels")
    for got, expected in steps:
        tally.add(np.array(got, dtype), np.array(expected, dtype))
    return tally.difference()


def test_whole_numbers_are_classes_and_no_distance_counts() -> None:
    """A class that flips at a near tie is one entry that differs, however far apart the numbers of the two are."""
    right = list(range(100))
    flipped = classes_of((right, right), ([*right[:7], 9999, *right[8:]], right))
    lossy = LossyTolerance(max_abs=0.5, sqnr_db=25.0)
    assert flipped.sqnr_db is None and flipped.holds(lossy) and flipped.used(lossy) == pytest.approx(0.5)
    assert not flipped.holds(Tolerance(max_abs=1e6))  # nothing rounds on purpose: equal to the last bit
    assert flipped.exceeded(Tolerance(max_abs=1e-5)) == (
        "equal to the original's in all of its entries, as classes, got 199 of 200 equal, the first other one at "
        "chained step 1: 9999 at [7], not 7"
    )
    near = classes_of(([each + 1 for each in right], right))
    assert not near.holds(LossyTolerance(max_abs=0.5)), "near in number, and all of them other classes"
    assert "at least 99 % of its entries" in near.exceeded(lossy)


def test_large_whole_numbers_must_be_equal_where_nothing_rounds_on_purpose() -> None:
    assert not classes_of(([1_000_001], [1_000_000])).holds(CLOSE)


def test_truths_and_other_lengths_are_counted() -> None:
    flags = classes_of(([0, 1, 1, 0], [0, 1, 1, 1]), dtype="bool")
    assert (
        flags.classes is not None and flags.classes.equal == 0.75 and flags.holds(Tolerance(max_abs=1, min_equal=0.7))
    )
    longer = classes_of(([1, 2, 3], [1, 2]))
    assert not longer.holds(LossyTolerance(max_abs=0.5)) and "shape [3], not [2]" in longer.exceeded(CLOSE)
