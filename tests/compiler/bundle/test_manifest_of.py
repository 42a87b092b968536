"""What the manifest says of a graph."""

import pytest

from compiler.bundle import manifest_of


@pytest.mark.parametrize(("dtype", "zero"), [("float32", 0.0), ("float16", 0.0), ("int64", 0), ("bool", False)])
def test_a_state_starts_with_the_zero_of_its_own_type(dtype: str, zero: bool | int | float) -> None:
    initial = manifest_of._initial(0, dtype)
    assert (initial, type(initial)) == (zero, type(zero))


def test_numbers_that_differ_are_rounded_to_the_type() -> None:
    assert manifest_of._initial((((0.1,), (2.5,)),), "float16") == (((0.0999755859375,), (2.5,)),)
