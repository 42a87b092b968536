"""Noise over signal: one measure, whatever lies in the arrays."""

import math

import numpy as np
import pytest

from compiler.calib.noise import Noise, decibels, rms, share_of

NAN, INF = math.nan, math.inf


def noise_of(*pairs: tuple[object, object]) -> Noise:
    found = Noise()
    for got, right in pairs:
        found.add(np.array(got, np.float32), np.array(right, np.float32))
    return found


def test_arrays_add_up() -> None:
    found = noise_of(([1.0, 2.0], [1.0, 1.0]), ([[3.0]], [[1.0]]))
    assert (found.signal, found.noise, found.share) == (3.0, 5.0, 5.0 / 3.0)
    assert found.sqnr_db == pytest.approx(10 * math.log10(3 / 5))


@pytest.mark.parametrize(
    ("got", "right", "share"),
    [
        ([0.0], [0.0], 0.0),
        ([1.0], [0.0], INF),
        ([], [], 0.0),
        ([NAN, 2.0], [NAN, 1.0], 1.0),
        ([INF, 2.0], [INF, 1.0], 1.0),
        ([-INF, 2.0], [INF, 1.0], INF),
        ([NAN, 1.0], [1.0, 1.0], INF),
        ([1.0, 1.0], [NAN, 1.0], INF),
        ([1.0, 1.0], [1.0], INF),
        ([[1.0, 2.0]], [[1.0], [2.0]], INF),
    ],
)
def test_numbers_that_are_not_finite_must_be_the_same(got: object, right: object, share: float) -> None:
    assert noise_of((got, right)).share == share


def test_what_has_no_ratio_has_no_decibels() -> None:
    assert noise_of(([1.0], [1.0])).sqnr_db is None
    assert noise_of(([1.0], [0.0])).sqnr_db is None
    assert noise_of(([NAN], [1.0])).sqnr_db == -INF


def test_decibels_and_shares_belong_together() -> None:
    assert decibels(share_of(40.0)) == pytest.approx(40.0)
    assert share_of(20.0) == pytest.approx(0.01)
    assert decibels(0.0) == 300.0 and decibels(INF) == -INF


def test_root_mean_square() -> None:
    assert rms(np.array([3, 4, 0, 0], np.float16)) == 2.5
    assert rms(np.zeros(0)) == 0.0
