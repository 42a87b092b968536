"""Feeds of random numbers in the sizes that the caller names."""

import numpy as np
import pytest

from compiler.errors import RecipeError
from compiler.front.commands.example_feeds import random_feeds, require_sizes, shape_in
from compiler.front.commands.onnx_signature import Tensor
from compiler.graph.sizes.expressions import expression, symbol

FEATURES = Tensor("x", (symbol("batch"), symbol("time"), 3), "float32")
TOKENS = Tensor("tokens", (expression("time + 1"),), "int64")
SIZES = {"batch": 2, "time": 5}


def test_feeds_have_the_sizes_and_are_the_same_for_a_seed() -> None:
    one, two = random_feeds([FEATURES, TOKENS], SIZES, 7, 2)
    assert {name: (array.shape, str(array.dtype)) for name, array in one.items()} == {
        "x": ((2, 5, 3), "float32"),
        "tokens": ((6,), "int64"),
    }
    assert set(np.unique(one["tokens"])) <= {0, 1}
    assert not np.array_equal(one["x"], two["x"])
    np.testing.assert_array_equal(one["x"], random_feeds([FEATURES, TOKENS], SIZES, 7, 1)[0]["x"])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "float64", "bfloat16"])
def test_every_element_type_is_made(dtype: str) -> None:
    (feed,) = random_feeds([Tensor("x", (4,), dtype)], {}, 0, 1)
    assert str(feed["x"].dtype) == dtype


def test_a_missing_size_is_told_with_what_to_write() -> None:
    with pytest.raises(RecipeError, match="expected a size for time of x ") as error:
        require_sizes("m.onnx", [FEATURES, TOKENS], {"batch": 1})
    assert error.value.cure == "write --set-size time=16"
    require_sizes("m.onnx", [FEATURES, TOKENS], SIZES)


def test_the_sizes_to_write_are_one_for_axes_that_are_one() -> None:
    tensors = [Tensor(name, (symbol(f"{name}_0"), symbol(f"{name}_1")), "float32") for name in ("x", "k", "v")]
    alike = {"k_0": "x_0", "v_0": "x_0", "v_1": "k_1"}
    with pytest.raises(RecipeError) as error:
        require_sizes("m.onnx", tensors, {}, lambda: alike)
    written = "x_0=1 x_1=16 k_0=1 k_1=16 v_0=1 v_1=16"
    assert error.value.cure == "write " + " ".join(f"--set-size {each}" for each in written.split())
    with pytest.raises(RecipeError) as error:
        require_sizes("m.onnx", tensors, {"v_0": 3, "k_1": 7}, lambda: alike)
    written = "x_0=3 x_1=16 k_0=3 v_1=7"
    assert error.value.cure == "write " + " ".join(f"--set-size {each}" for each in written.split())


def test_a_size_of_no_axis_is_told_with_the_right_names() -> None:
    with pytest.raises(RecipeError, match="did you mean 'time'"):
        require_sizes("m.onnx", [FEATURES], {**SIZES, "times": 3})


def test_a_size_below_zero_is_refused() -> None:
    with pytest.raises(RecipeError, match="expected sizes from 0, got"):
        shape_in(Tensor("x", (expression("time - 9"),), "float32"), SIZES)


def test_more_entries_than_any_feed_holds_are_refused() -> None:
    with pytest.raises(RecipeError, match="expected at most 268435456 entries, got"):
        shape_in(FEATURES, {"batch": 2**31 - 1, "time": 2**31 - 1})
