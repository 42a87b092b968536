"""written_numbers: one number for a whole tensor, or lists as deep as its shape, of numbers that its type has."""

import math

import pytest

from compiler.recipe.written_numbers import fault_of_constant, fault_of_initial, fault_of_shape
from runtime_lite.format.initial_value import MAX_ALONG, Initial

RIGHT: list[tuple[Initial, str]] = [(0.5, "float32"), (((1.0, 2),), "float32"), (((3,),), "int64"), (True, "bool")]


@pytest.mark.parametrize(("given", "dtype"), RIGHT)
def test_a_number_or_one_per_entry_is_right(given: Initial, dtype: str) -> None:
    assert fault_of_initial(given, [1, 2], dtype) is None


WRONG: dict[str, tuple[Initial, str, str]] = {
    "another size": (((1.0, 2.0, 3.0),), "float32", "of shape [1, 2], with 1 for any size, got lists of shape [1, 3]"),
    "another depth": ((1.0, 2.0), "float32", "got lists of shape [2]"),
    "ragged": (((1.0,), (1.0, 2.0)), "float32", "got lists of different lengths"),
    "no number": (math.nan, "float32", "expected numbers that float32 has, got nan"),
    "infinite": (((0.0, math.inf),), "float32", "got inf"),
    "too large for the type": (1e5, "float16", "expected numbers that float16 has, got 100000.0"),
    "a fraction": (0.5, "int64", "expected numbers that int64 has, got 0.5"),
    "below 0": (-1, "uint8", "got -1"),
    "a number for a truth": (1, "bool", "expected numbers that bool has, got 1"),
    "a truth for a number": (((True, False),), "float32", "got True"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told(what: str) -> None:
    given, dtype, told = WRONG[what]
    fault = fault_of_initial(given, [1, 2], dtype)
    assert fault is not None and told in fault[0]


def test_a_bundle_lists_no_more_numbers_than_it_may() -> None:
    many = ((0.0,) * (MAX_ALONG + 1),)
    fault = fault_of_initial(many, [1, MAX_ALONG + 1], "float32")
    assert (
        fault is not None
        and "4096 of them along one axis, as a bundle lists each, got lists of shape [1, 4097]" in fault[0]
    )


def test_a_shape_is_held_to_the_sizes_axis_by_axis() -> None:
    assert fault_of_shape((), [1, 2]) is None and fault_of_shape((1, 1), [1, 2]) is None
    assert fault_of_shape((2, 1), [1, 2]) is not None and fault_of_shape(None, [1, 2]) is not None


def test_a_constant_has_its_very_shape() -> None:
    assert fault_of_constant((1, 2), [2], "int64") is None
    assert fault_of_constant((1,), [2], "int64") == (
        "expected a number, or lists of shape [2], got lists of shape [1]",
        "write one of both",
    )
