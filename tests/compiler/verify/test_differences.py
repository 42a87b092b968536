"""The comparison itself: what it must see, and what it must not complain about."""

import numpy as np
import pytest

from compiler.recipe.gates import Tolerance
from compiler.runners.choose import runner_of
from compiler.verify.differences import Difference, Tally, compare, max_abs_difference, worst_of
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
