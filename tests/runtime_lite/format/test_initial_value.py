"""What a state begins with is a number, or numbers along its axes, in their shortest form."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_lite.format.initial_value import (
    Initial,
    array_of_initial,
    initial_of_array,
    initial_of_lists,
    numbers_of_initial,
    shape_of_initial,
)

SHORTEST: list[tuple[np.ndarray, Initial]] = [
    (np.zeros((2, 3), np.float32), 0.0),
    (np.array(False), False),
    (np.full((1, 2, 3), 7, np.int64), 7),
    (np.array([[[1, 1], [2, 2]]], np.float32), (((1.0,), (2.0,)),)),
    (np.array([[[1, 2], [1, 2]]], np.float32), (((1.0, 2.0),),)),
]


@pytest.mark.parametrize(("array", "initial"), SHORTEST)
def test_axes_along_which_all_is_alike_have_one_entry(array: np.ndarray, initial: Initial) -> None:
    assert initial_of_array(array) == initial
    assert type(initial_of_array(array)) is type(initial)


@given(st.lists(st.lists(st.sampled_from([0.0, -1.5, 3e38]), min_size=3, max_size=3), min_size=1, max_size=3))
def test_nothing_is_lost(rows: list[list[float]]) -> None:
    array = np.array(rows, np.float32)
    initial = initial_of_lists(json.loads(json.dumps(initial_of_array(array))))
    assert np.array_equal(np.broadcast_to(array_of_initial(initial, "float32"), array.shape), array)
    assert np.prod(shape_of_initial(initial) or ()) == len(list(numbers_of_initial(initial)))


SHAPES: list[tuple[Initial, tuple[int, ...] | None]] = [
    (1.5, ()),
    ((1, 2), (2,)),
    (((1,), (2,)), (2, 1)),
    ((), (0,)),
    (((1,), 2), None),
    (((1,), (2, 3)), None),
    ((((1,), 2),), None),
]


@pytest.mark.parametrize(("initial", "shape"), SHAPES)
def test_parts_of_one_level_have_one_shape(initial: Initial, shape: tuple[int, ...] | None) -> None:
    assert shape_of_initial(initial) == shape
