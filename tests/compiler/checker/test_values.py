"""Drawn values are as bad as a fact allows, and no worse."""

import math

import numpy as np
import pytest

from compiler.checker.slots import Layout, Lengths
from compiler.checker.values import content_of, count_positions, paddings_of, within, worst_of, worst_values

FACT = {"contents": [[[], 0.0, 1.0, False], [[1], "-inf", "inf", True]]}


@pytest.mark.parametrize(("low", "high"), [(-9.0, -2.0), (-1.0, 1.0), (3.0, 2.0**40), (0.0, 0.0)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_bounds_are_kept(low: float, high: float, dtype: type) -> None:
    shape = (400,)
    padding = np.arange(400) % 2 == 0
    drawn = worst_values(
        np.full(shape, low), np.full(shape, high), np.zeros(shape, bool), padding,
        np.random.default_rng(0), np.dtype(dtype), 3,
    )  # fmt: skip
    assert ((drawn >= low) & (drawn <= high)).all()
    assert {low, high} <= set(drawn[padding].tolist()), "both ends are tried"


def test_anything_is_nan_infinite_and_huge() -> None:
    shape = (400,)
    every = np.ones(shape, bool)
    drawn = worst_values(
        np.full(shape, -math.inf),
        np.full(shape, math.inf),
        every,
        every,
        np.random.default_rng(0),
        np.dtype(np.float32),
        3,
    )
    assert np.isnan(drawn).any() and np.isposinf(drawn).any() and np.isneginf(drawn).any() and (drawn == 1e30).any()


def test_positions_count_from_the_first_valid_slot() -> None:
    lengths = Lengths({"time": 4}, [{"time": 3}])
    layout = Layout({"axes": {"0": [{"frames": [["time", "right"]]}]}, "contents": []}, ["time"], lengths, None)
    array = np.zeros(4)
    count_positions(array, layout, 0, 10, lengths)
    assert array.tolist() == [9, 10, 11, 12]


def test_what_a_fact_says_of_regions() -> None:
    assert content_of(FACT, frozenset({1})) == (-math.inf, math.inf, True)
    assert content_of(FACT, frozenset({2})) == (-math.inf, math.inf, True)
    assert paddings_of(FACT) == [[[1], "-inf", "inf", True]]


def test_bounds_of_types() -> None:
    assert worst_of(9) == (0.0, 1.0, False) and worst_of(1) == (-math.inf, math.inf, True)
    assert worst_of(6)[0] == -(2.0**31)


def test_within_allows_rounding_and_no_more() -> None:
    assert within(np.array([1.0 + 1e-6]), (0.0, 1.0, False)) and not within(np.array([1.1]), (0.0, 1.0, False))
    assert within(np.array([math.nan]), (0.0, 1.0, True)) and not within(np.array([math.nan]), (0.0, 1.0, False))
    assert not within(np.array([0.5, math.nan]), (0.0, 1.0, False)) and within(
        np.array([-math.inf]), (-math.inf, 0.0, False)
    )


def test_valid_entries_are_the_same_with_padding_elsewhere_and_without() -> None:
    shape = (50, 2)
    low, high, none = np.full(shape, -1.0), np.full(shape, 2.0), np.zeros(shape, bool)
    behind = none.copy()
    behind[:, 1] = True
    alone, padded = (
        worst_values(low, high, none, padding, np.random.default_rng(3), np.dtype(np.float32), 3)
        for padding in (none, behind)
    )
    assert (alone[:, 0] == padded[:, 0]).all() and ((alone >= -1.0) & (alone <= 2.0)).all()
    assert (padded[:, 1] != alone[:, 1]).any()
