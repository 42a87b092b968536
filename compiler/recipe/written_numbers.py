"""Checks the values that a recipe gives for a tensor: one number for all entries, or nested lists of its shape."""

from collections.abc import Iterator, Sequence

import numpy as np

from runtime_lite.format.arrays import holds
from runtime_lite.format.initial_value import (
    MAX_ALONG,
    MAX_NUMBERS,
    Initial,
    Number,
    numbers_of_initial,
    shape_of_initial,
)


def fault_of_constant(given: Initial, shape: Sequence[int | str], dtype: str) -> tuple[str, str] | None:
    """Return the fault of a constant's numbers, `expected ..., got ...`, and a cure; None if there is none.

    Args:
        given: a number for all entries, or lists of exactly the shape.
        shape: shape of the input.
        dtype: element type of the input.
    """
    sizes = shape_of_initial(given)
    if sizes is None or (sizes and sizes != tuple(shape)):
        return f"expected a number, or lists of shape {list(shape)}, got {_shown(sizes)}", "write one of both"
    return _fault_of_numbers(given, dtype, "write one that it has, or the type that the model takes")


def fault_of_initial(given: Initial, sizes: Sequence[int], dtype: str) -> tuple[str, str] | None:
    """Return the fault of a state's initial value, and a cure, as `fault_of_constant` does; None if there is none.

    Args:
        given: a number for all entries, or lists of the shape's rank, with size 1 along axes of equal entries.
        sizes: sizes of the state, 1 for the batch.
        dtype: element type of the state.
    """
    shape = shape_of_initial(given)
    fault = fault_of_shape(shape, sizes)
    if fault is not None or shape is None:
        return fault
    if max(shape, default=1) > MAX_ALONG or np.prod(shape, dtype=np.int64) > MAX_NUMBERS:
        cure = "let entries that are alike be one, of size 1 along their axis, or compute the rest in the model"
        limits = f"at most {MAX_NUMBERS} numbers, {MAX_ALONG} of them along one axis"
        return f"expected {limits}, as a bundle lists each, got {_shown(shape)}", cure
    return _fault_of_numbers(given, dtype, "write one that it has, or the type of the state")


def fault_of_shape(shape: Sequence[int] | None, sizes: Sequence[int]) -> tuple[str, str] | None:
    """Return the fault of an initial value's shape; `shape` is None for lists of different lengths."""
    fits = (
        shape is not None
        and len(shape) == len(sizes)
        and all(size in (1, whole) for size, whole in zip(shape, sizes, strict=True))
    )
    if fits or (shape is not None and not shape):
        return None
    expected = f"a number, or numbers of shape {list(sizes)}, with 1 for any size"
    return (
        f"expected {expected}, got {_shown(shape)}",
        "give one per entry, and 1 along the batch, whose rows begin alike",
    )


def _fault_of_numbers(given: Initial, dtype: str, cure: str) -> tuple[str, str] | None:
    other = next(_not_of(dtype, given), None)
    return None if other is None else (f"expected numbers that {dtype} has, got {other!r}", cure)


def _not_of(dtype: str, given: Initial) -> Iterator[Number]:
    """Yield the numbers that an element type cannot hold."""
    kind = "float32" if dtype == "bfloat16" else dtype
    for number in numbers_of_initial(given):
        is_number = type(number) in ((bool,) if dtype == "bool" else (int, float))
        if not is_number or not holds(kind, float(number)):
            yield number


def _shown(shape: Sequence[int] | None) -> str:
    return "lists of different lengths" if shape is None else f"lists of shape {list(shape)}"
