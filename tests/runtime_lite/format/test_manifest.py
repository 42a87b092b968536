"""The small arithmetic of the records."""

import numpy as np
import pytest

from runtime_lite.format.manifest import DTYPES, bucket_name, static_shape, tensor_bytes


def test_a_bucket_has_one_name_whatever_the_order_of_its_axes() -> None:
    assert bucket_name({"frames": 3, "batch": 4}) == "batch=4,frames=3"
    assert bucket_name({}) == "static"


def test_axis_names_and_formulas_become_sizes() -> None:
    assert static_shape(("batch", 3), {"batch": 2}) == (2, 3)
    assert static_shape(("batch", "(time - 1) // 2 + 1"), {"batch": 2, "time": 8}) == (2, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_in_bytes_are_numpys(dtype: str) -> None:
    assert tensor_bytes((2, 3), dtype) == np.zeros((2, 3), dtype).nbytes
