"""Values of places alone that no rule follows, evaluated for every sequence that the caches can hold.

    mask [1, 1, T, T] = GatherND(CumSum(Cast(Not(Equal(Slice(Concat(...)), ...)))), ...) <= ...

Whatever wrote it, it is a finite table: for the longest sequence it is computed once, and for each shorter one it is
compared with the upper left part of that. So it is proved, and not guessed from a few lengths, that a value is a
function of its places: a value that hangs on the length of the sequence differs somewhere, and is refused.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from compiler import ir as house
from compiler.analysis.shape_only import ShapeOnly
from compiler.derivation.links import dims

Array = npt.NDArray[Any]

OTHERS = (2, 3)
"""Sizes of other axes, along which a value of places may only be repeated."""

MOST_BYTES = 2**28
"""Of a table for the longest sequence."""


class NotPlaced(Exception):
    """A value is no function of its places; the text says why."""


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """A value as a table.

    Attributes:
        array: for the longest sequence; axes of other names have one entry, which is repeated.
        along: its axes of time, ascending.
    """

    array: Array
    along: tuple[int, ...]


def placed(value: ir.Value, frames: sympy.Symbol, longest: int) -> Placed:
    """Evaluate a value of places for all lengths.

    Args:
        value: it depends on sizes and constants alone.
        frames: the number of frames.
        longest: frames of the longest sequence.

    Raises:
        NotPlaced: it is no beginning of itself on a longer sequence, or cannot be evaluated.
    """
    shape = dims(value)
    along = tuple(at for at, dim in enumerate(shape) if dim == frames)
    for dim in shape:
        if dim != frames and house.mentions(dim, str(frames)):
            raise NotPlaced(f"an axis of {dim} entries is made")
    try:
        made = ShapeOnly([value])
    except ValueError as error:
        raise NotPlaced(f"it cannot be evaluated: {error}") from None

    def at(length: int, other: int) -> Array:
        try:
            return made.at({name: length if name == frames else other for name in made.names})[0]
        except ValueError as error:
            raise NotPlaced(f"it cannot be evaluated for {length} frames: {' '.join(str(error).split())}") from None

    whole = at(longest, 1)
    if whole.nbytes > MOST_BYTES:
        raise NotPlaced(f"a table of {whole.nbytes} bytes for {longest} frames is too large")
    for length in range(1, longest):
        if not _same(at(length, 1), _beginning(whole, along, length)):
            raise NotPlaced(f"it is not the same for {length} frames and for {longest}")
    for other in OTHERS if any(name != frames for name in made.names) else ():
        for length in {1, min(2, longest), longest}:
            found = at(length, other)
            if not _same(found, np.broadcast_to(_beginning(whole, along, length), found.shape)):
                raise NotPlaced("it differs between rows, or with an axis that is not time")
    return Placed(whole, along)


def _beginning(array: Array, along: tuple[int, ...], length: int) -> Array:
    return array[tuple(slice(length) if at in along else slice(None) for at in range(array.ndim))]


def _same(first: Array, second: Array) -> bool:
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=first.dtype.kind in "fc"))
