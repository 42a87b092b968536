"""Converts the initial value of a state, one number or numbers that vary along axes, to and from arrays.

Numbers that differ are nested tuples with one level per axis of the state. The size of a level is that of the axis, or
1 if all entries along it are equal, as they always are along rows: `(((0.5,), (-0.25,)),)` is one number for each
channel of `("batch", 2, 14)`.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Number: TypeAlias = bool | int | float
Initial: TypeAlias = "Number | tuple[Initial, ...]"

MAX_NUMBERS = 2**16
"""Largest number of numbers of one state; they are stored in the manifest and in every graph file."""

MAX_ALONG = 4096
"""Largest number of entries along one axis, as for any list of the manifest."""


def array_of_initial(initial: Initial, dtype: str) -> Array:
    """Return the numbers as an array that broadcasts to the state."""
    return np.asarray(initial, dtype)


def initial_of_array(array: Array) -> Initial:
    """Return the shortest form of an array: axes along which all entries are equal get size 1."""
    for axis, size in enumerate(array.shape):
        first = array.take([0], axis)
        if size > 1 and np.array_equal(array, np.broadcast_to(first, array.shape)):
            array = first
    return initial_of_lists(array.item() if array.size == 1 else array.tolist())


def initial_of_lists(plain: Any) -> Initial:
    """Convert nested lists to nested tuples; nothing is checked."""
    return tuple(map(initial_of_lists, plain)) if isinstance(plain, list) else plain


def shape_of_initial(initial: Initial) -> tuple[int, ...] | None:
    """Return the sizes of the levels, `()` for a single number; None if the sizes of one level differ."""
    if not isinstance(initial, tuple):
        return ()
    shapes = {shape_of_initial(each) for each in initial}
    if len(shapes) > 1 or None in shapes:
        return None
    return (len(initial), *(next(iter(shapes), None) or ()))


def numbers_of_initial(initial: Initial) -> Iterator[Number]:
    """Yield every number of an initial value."""
    if isinstance(initial, tuple):
        for each in initial:
            yield from numbers_of_initial(each)
    else:
        yield initial
