"""Types hold whole numbers up to where they wrap around or round."""

import numpy as np
import onnx_ir as ir
import pytest
import sympy

from compiler.graph.sizes.expressions import symbol
from compiler.graph.sizes.held_numbers import can_hold, held_numbers, holds_lengths

FLOATS = [ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE]


@pytest.mark.parametrize("dtype", [ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.UINT64])
def test_integers(dtype: ir.DataType) -> None:
    held = np.iinfo(dtype.numpy())
    assert held_numbers(dtype) == (held.min, held.max)


@pytest.mark.parametrize("dtype", FLOATS)
def test_all_numbers_up_to_the_largest_are_exact(dtype: ir.DataType) -> None:
    _, most = held_numbers(dtype)
    assert int(np.array(most - 1).astype(dtype.numpy())) == most - 1
    assert int(np.array(most + 1).astype(dtype.numpy())) != most + 1


def test_what_holds_lengths() -> None:
    assert [holds_lengths(dtype) for dtype in (ir.DataType.INT16, ir.DataType.FLOAT16, ir.DataType.BOOL)] == [False] * 3
    assert all(holds_lengths(dtype) for dtype in (ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.UINT64))
    assert not can_hold(ir.DataType.INT8, symbol("time")) and can_hold(ir.DataType.INT32, symbol("time"))
    assert can_hold(ir.DataType.INT8, 127) and not can_hold(ir.DataType.INT8, 128) and can_hold(None, 1 << 80)
    assert not can_hold(ir.DataType.STRING, 1)


@pytest.mark.parametrize("number", [sympy.Integer(100), 100], ids=["in symbols", "plain"])
def test_a_number_in_symbols_is_that_number(number: sympy.Integer | int) -> None:
    # regression: it was taken for a length, which int8 holds none of, and so was the plain number asked for after it
    can_hold.cache_clear()
    assert can_hold(ir.DataType.INT8, number) and not can_hold(ir.DataType.INT8, number + 100)
