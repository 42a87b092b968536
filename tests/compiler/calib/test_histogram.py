"""What calibration keeps of a tensor."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from compiler.calib.histogram import BINS, Histogram, Table


def recorded(arrays: Iterable[Any], channel_axis: int = -1) -> Histogram:
    histogram = Histogram(channel_axis)
    for array in arrays:
        histogram.add(np.asarray(array, np.float32))
    return histogram


def test_counts_do_not_depend_on_the_order_of_arrays() -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((5, 8)) * scale for scale in (1e-3, 1.0, 4.0, 300.0)] + [np.full((1, 8), 512.0)]
    forward, backward = recorded(arrays), recorded(arrays[::-1])
    assert np.array_equal(forward.counts, backward.counts) and forward.radius == backward.radius == 1024.0
    assert forward.counts.sum() == forward.entries == 21 * 8


def test_zeros_before_anything_else_stay_in_the_middle() -> None:
    late, early = recorded([np.zeros((2, 3)), np.ones((1, 3))]), recorded([np.ones((1, 3)), np.zeros((2, 3))])
    assert np.array_equal(late.counts, early.counts) and late.counts[BINS // 2] == 6


def test_padding_leaves_no_trace() -> None:
    valid = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    padded = np.concatenate([np.full((3, 4), np.nan, np.float32), valid, np.full((1, 4), np.inf, np.float32)])
    clean, dirty = recorded([valid]), recorded([padded])
    assert Table({"x": clean}, 1).digest == Table({"x": dirty}, 1).digest
    assert (dirty.dropped, clean.dropped) == (16, 0)


def test_finite_garbage_does_leave_a_trace() -> None:
    valid = np.ones((2, 4), np.float32)
    assert (
        Table({"x": recorded([valid])}, 1).digest
        != Table({"x": recorded([valid, np.full((1, 4), 9.0, np.float32)])}, 1).digest
    )


def test_entries_without_channels_are_counted_as_the_others_are() -> None:
    array = np.array([[1.0, np.nan], [-2.0, np.inf]], np.float32)
    histogram = Histogram(-1)
    histogram.add_entries(array)
    histogram.add_entries(array[0])
    assert (histogram.low, histogram.high, histogram.entries, histogram.dropped) == (-2.0, 1.0, 3, 3)


def test_channels_of_any_axis() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    histogram = recorded([array, -array], channel_axis=1)
    assert histogram.largest.tolist() == [15.0, 19.0, 23.0]
    assert histogram.mean_squares == pytest.approx((array.astype(float) ** 2).mean(axis=(0, 2)))
    assert histogram.rows.shape == (16, 3)


def test_few_rows_are_kept_spread_over_everything() -> None:
    histogram = Histogram(-1, keep_rows=8)
    for start in range(0, 1000, 10):
        histogram.add(np.arange(start, start + 10, dtype=np.float32)[:, None])
    kept = histogram.rows[:, 0]
    assert 4 <= len(kept) <= 8 and len(set(np.diff(kept))) == 1 and kept[-1] >= 750


def test_the_share_outside_a_range() -> None:
    histogram = recorded([np.linspace(-1, 1, 1001)[:, None]])
    assert histogram.share_outside(-0.5, 0.5) == pytest.approx(0.5, abs=0.01)
    assert histogram.share_outside(-2, 2) == 0.0


def test_nothing_but_padding() -> None:
    histogram = recorded([np.full((2, 3), np.nan)])
    assert histogram.entries == 0 and histogram.rows.shape == (0, 0) and histogram.largest.size == 0
