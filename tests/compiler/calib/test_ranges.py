"""Ranges that a tensor may be given."""

from typing import Any

import numpy as np
import pytest

from compiler.calib.histogram import Histogram
from compiler.calib.ranges import ranges_of


def histogram_of(values: Any) -> Histogram:
    histogram = Histogram(-1)
    histogram.add(np.asarray(values, np.float32).reshape(-1, 1))
    return histogram


def test_all_methods_from_one_histogram() -> None:
    values = np.concatenate([np.random.default_rng(0).standard_normal(200_000), [60.0]])
    found = {each.method: each for each in ranges_of(histogram_of(values))}
    assert list(found) == [
        "min-max", "percentile 99.999", "percentile 99.99", "percentile 99.9", "least square error", "entropy",
    ]  # fmt: skip
    assert found["min-max"].high == 60.0
    width = 128 / 4096
    for percent in (99.9, 99.99):
        exact = np.percentile(values, percent)
        assert exact <= found[f"percentile {percent}"].high <= exact + 2 * width
    assert found["least square error"].high < 60.0 and found["entropy"].high < 20.0


def test_no_range_is_wider_than_the_data_and_all_hold_zero() -> None:
    generator = np.random.default_rng(1)
    for values in (generator.random(5000) + 1, -generator.random(5000) - 1, generator.standard_cauchy(5000)):
        histogram = histogram_of(values)
        for each in ranges_of(histogram):
            assert min(histogram.low, 0.0) <= each.low <= 0.0 <= each.high <= max(histogram.high, 0.0), each


def test_the_square_error_is_least_where_it_says() -> None:
    values = np.random.default_rng(2).laplace(size=100_000)
    chosen = next(each for each in ranges_of(histogram_of(values)) if each.method == "least square error")

    def error(low: float, high: float) -> float:
        scale = (high - low) / 255
        return float(np.mean((np.clip(np.rint(values / scale) * scale, low, high) - values) ** 2))

    shares = np.linspace(0.2, 1.0, 30)
    least = min(error(share * values.min(), share * values.max()) for share in shares)
    assert error(chosen.low, chosen.high) == pytest.approx(least, rel=0.05)


def test_constants_and_nothing() -> None:
    assert [each.method for each in ranges_of(histogram_of([]))] == ["min-max"]
    assert ranges_of(histogram_of([0.0, 0.0]))[0].high == 0.0
    assert ranges_of(histogram_of([2.0, 2.0]))[0].high == 2.0
