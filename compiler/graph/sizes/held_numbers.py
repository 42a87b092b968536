"""Checks which integers an element type can hold; larger lengths wrap around or are rounded."""

import functools

import onnx_ir as ir

from compiler.graph.sizes.expressions import Dim

LONG, LONG_TOGETHER = 2**15, 2**10
"""A length that every size has to fit its type at, and those of several axes: what fits up to there may be limited."""

_EXACT = {
    ir.DataType.BOOL: (0, 1),
    ir.DataType.BFLOAT16: (-(2**8), 2**8),
    ir.DataType.FLOAT16: (-(2**11), 2**11),
    ir.DataType.FLOAT: (-(2**24), 2**24),
    ir.DataType.DOUBLE: (-(2**53), 2**53),
}
"""Of types that are no integers: the whole numbers up to which all are exact."""


def held_numbers(dtype: ir.DataType) -> tuple[int, int]:
    """Return the least and largest integer between which a type holds every one; 0 and 0 where unknown."""
    if not dtype.is_integer():
        return _EXACT.get(dtype, (0, 0))
    if dtype.is_signed():
        return -(2 ** (dtype.bitwidth - 1)), 2 ** (dtype.bitwidth - 1) - 1
    return 0, 2**dtype.bitwidth - 1


def holds_lengths(dtype: ir.DataType) -> bool:
    """Whether a type holds every relevant length; int8, int16, float16 and bool do not."""
    return held_numbers(dtype)[1] >= LONG


@functools.lru_cache(maxsize=100_000)
def can_hold(dtype: ir.DataType | None, number: Dim) -> bool:
    """Whether a type holds a number; of a size, its value at long lengths."""
    if dtype is None:
        return True
    least, most = held_numbers(dtype)
    if isinstance(number, int) or number.is_Integer:
        return bool(least <= number <= most)
    names = number.free_symbols
    there = number.subs(dict.fromkeys(names, LONG if len(names) == 1 else LONG_TOGETHER))
    return holds_lengths(dtype) and (not there.is_number or bool(min(least, -LONG) <= there <= most))
