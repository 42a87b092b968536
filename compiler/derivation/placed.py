"""Values of places alone that no rule follows, evaluated for every sequence that the caches can hold.

    mask [1, 1, T, T] = GatherND(CumSum(Cast(Not(Equal(Slice(Concat(...)), ...)))), ...) <= ...

Whatever wrote it, it is a finite table: for the longest sequence it is computed once, and for each shorter one it is
compared with the upper left part of that. So it is proved, and not guessed from a few lengths, that a value is a
function of its places: a value that hangs on the length of the sequence differs somewhere, and is refused.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from compiler import ir as house
from compiler.analysis.shape_only import ShapeOnly
from compiler.derivation.links import dims
from compiler.derivation.other_sizes import NotBounded, sizes_of
from compiler.derivation.prefixes import before_frames

Array = npt.NDArray[Any]

MOST_RUNS = 1024
"""With every size of other axes at every length; where there are more, the shortest and the longest stand for all."""

MOST_BYTES = 2**28
"""Of a table for the longest sequence."""


class NotPlaced(Exception):
    """A value is no function of its places; the text says why."""


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """A value as a table.

    Attributes:
        array: for the longest sequence, behind its prefix; axes of other names have one entry, which is repeated.
        along: its axes of time, ascending.
        prefixes: entries in front of the frames, by axis; none where an axis is not named.
    """

    array: Array
    along: tuple[int, ...]
    prefixes: Mapping[int, int] = dataclasses.field(default_factory=dict)


def placed(value: ir.Value, frames: sympy.Symbol, longest: int, most: Mapping[str, int]) -> Placed:
    """Evaluate a value of places for all lengths.

    Args:
        value: it depends on sizes and constants alone.
        frames: the number of frames.
        longest: frames of the longest sequence.
        most: the largest sizes of other axes, by name.

    Raises:
        NotPlaced: it is no beginning of itself on a longer sequence, or cannot be evaluated.
    """
    prefixes: dict[int, int] = {}
    for axis, dim in enumerate(dims(value)):
        if house.mentions(dim, str(frames)):
            before = before_frames(dim, frames)
            if not isinstance(before, int):
                reason = "is made" if before is None else "has a prefix of another length at every call"
                raise NotPlaced(f"an axis of {dim} entries {reason}")
            prefixes[axis] = before
    try:
        made = ShapeOnly([value])
    except ValueError as error:
        raise NotPlaced(f"it cannot be evaluated: {error}") from None

    def at(length: int, sizes: Mapping[sympy.Symbol, int]) -> Array:
        try:
            return made.at({name: sizes.get(name, length) for name in made.names})[0]
        except ValueError as error:
            raise NotPlaced(f"it cannot be evaluated for {length} frames: {' '.join(str(error).split())}") from None

    ones = {name: 1 for name in made.names if name != frames}
    whole = at(longest, ones)
    if whole.nbytes > MOST_BYTES:
        raise NotPlaced(f"a table of {whole.nbytes} bytes for {longest} frames is too large")
    for length in range(1, longest):
        if not _same(at(length, ones), _beginning(whole, prefixes, length)):
            raise NotPlaced(f"it is not the same for {length} frames and for {longest}")
    try:
        others = [sizes for sizes in sizes_of(made, frames, most) if sizes != ones]
    except NotBounded as never:
        raise NotPlaced(str(never)) from None
    is_few = len(others) * longest <= MOST_RUNS
    lengths = range(1, longest + 1) if is_few else sorted({1, min(2, longest), longest})
    for sizes, length in itertools.product(others, lengths):
        found = at(length, sizes)
        if not _same(found, np.broadcast_to(_beginning(whole, prefixes, length), found.shape)):
            raise NotPlaced("it differs between rows, or with an axis that is not time")
    return Placed(whole, tuple(prefixes), prefixes)


def _beginning(array: Array, prefixes: Mapping[int, int], length: int) -> Array:
    ends = (prefixes[at] + length if at in prefixes else None for at in range(array.ndim))
    return array[tuple(slice(end) for end in ends)]


def _same(first: Array, second: Array) -> bool:
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=first.dtype.kind in "fc"))
