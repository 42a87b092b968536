"""Evaluates position-dependent values that no rule covers, for every sequence length that the caches can hold.

    mask [1, 1, T, T] = GatherND(CumSum(Cast(Not(Equal(Slice(Concat(...)), ...)))), ...) <= ...

Whatever nodes compute the value, it is a finite table. The table is computed once for the longest sequence, and the
value at each shorter length is compared with the upper left corner of the table. This proves that the value is a
function of positions: a value that depends on the length of the sequence differs at some length, and is refused.

A prefix may have another length at every call. All of its entries are the same then, as those of a mask, and one stands
for them; or places are counted on behind it, as positions of a text and what follows it, and the table begins with
the longest prefix.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.axis_map import dims
from compiler.graph.model import Dim
from compiler.proof.derivation.other_sizes import NotBounded, sizes_of
from compiler.proof.derivation.prefixes import before_frames
from compiler.proof.facts.shape_only import ShapeOnly

Array = npt.NDArray[Any]

MOST_RUNS = 1024
"""With every size of other axes at every length; where there are more, the shortest and the longest stand for all."""

DIFFERS = "it differs between rows, or with an axis that is not time"

MOST_BYTES = 2**28
"""Of a table for the longest sequence."""


class NotPlaced(Exception):
    """A value is no function of its places; the text has the reason."""


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """A value as a table.

    Attributes:
        array: for the longest sequence, behind its prefix; axes of other names have one entry, which is repeated.
        along: its axes of time, ascending.
        prefixes: entries in front of the frames, by axis; none where an axis is not named.
        repeated: how often the one entry of a prefix is there, by axis; once where an axis is not named.
    """

    array: Array
    along: tuple[int, ...]
    prefixes: Mapping[int, Dim] = dataclasses.field(default_factory=dict)
    repeated: Mapping[int, Dim] = dataclasses.field(default_factory=dict)


def placed(value: ir.Value, frames: sympy.Symbol, longest: int, most: Mapping[str, int]) -> Placed:
    """Evaluate a value that depends on positions alone, for all lengths.

    Args:
        value: a value that depends on sizes and constants alone.
        frames: the number of frames.
        longest: frames of the longest sequence.
        most: the largest sizes of other axes, by name.

    Raises:
        NotPlaced: it is not a prefix of its value on a longer sequence, or cannot be evaluated.
    """
    befores = _befores(value, frames)
    try:
        evaluated = ShapeOnly([value])
        others = sizes_of(evaluated, frames, most)
    except ValueError as error:
        raise NotPlaced(f"it cannot be evaluated: {error}") from None
    except NotBounded as never:
        raise NotPlaced(str(never)) from None
    changing = {axis: before for axis, before in befores.items() if not isinstance(before, int)}
    alike = [axis for axis, dim in enumerate(dims(value)) if not isinstance(dim, int) and axis not in befores]
    layouts = [_Layout(alike, {**befores, **dict.fromkeys(changing, 1)}, changing)]
    layouts += [_Layout(alike, befores, {})] if 0 < len(changing) == len(befores) else []
    reasons = []
    for layout in layouts:
        try:
            return Placed(
                _table(evaluated, layout, frames, longest, others), tuple(befores), layout.prefixes, layout.repeated
            )
        except NotPlaced as never:
            reasons.append(never)
    raise reasons[0]


def _befores(value: ir.Value, frames: sympy.Symbol) -> dict[int, Dim]:
    """Return the number of entries in front of the frames, by axis."""
    found: dict[int, Dim] = {}
    for axis, dim in enumerate(dims(value)):
        if graphs.mentions(dim, str(frames)):
            before = before_frames(dim, frames)
            if before is None:
                raise NotPlaced(f"an axis of {dim} entries is made")
            found[axis] = before
    return found


@dataclasses.dataclass(frozen=True)
class _Layout:
    """How the entries of a value lie in its table: one along axes of other names, and else as `Placed` says."""

    alike: Sequence[int]
    prefixes: Mapping[int, Dim]
    repeated: Mapping[int, Dim]

    def kept(self, array: Array, sizes: Mapping[sympy.Symbol, int]) -> Array:
        """Return the entries that the table keeps for some sizes: one of those that repeat."""
        for axis in self.alike:
            first = array.take([0], axis)
            if not _same(array, np.broadcast_to(first, array.shape)):
                raise NotPlaced(DIFFERS)
            array = first
        for axis, count in self.repeated.items():
            front, rest = np.split(array, [_number(count, sizes)], axis)
            first = front.take([0], axis)
            if not _same(front, np.broadcast_to(first, front.shape)):
                raise NotPlaced("entries in front of its frames differ, and at every call there are others")
            array = np.concatenate([first, rest], axis)
        return array

    def beginning(self, table: Array, length: int, sizes: Mapping[sympy.Symbol, int]) -> Array:
        """Return the table's entries for a shorter sequence."""
        ends = {axis: _number(before, sizes) + length for axis, before in self.prefixes.items()}
        return table[tuple(slice(ends.get(axis)) for axis in range(table.ndim))]


def _number(count: Dim, sizes: Mapping[sympy.Symbol, int]) -> int:
    found = sympy.sympify(count).subs(sizes)
    if not found.is_number:
        raise NotPlaced(f"a prefix of {count} entries lies in front of its frames")
    return int(found)


def _table(
    made: ShapeOnly, layout: _Layout, frames: sympy.Symbol, longest: int, others: Sequence[Mapping[sympy.Symbol, int]]
) -> Array:
    """Return the table for the longest sequence, after checking that every shorter value is a prefix of it."""

    def entries_at(length: int, sizes: Mapping[sympy.Symbol, int]) -> Array:
        try:
            entries = made.at({name: sizes.get(name, length) for name in made.names})[0]
        except ValueError as error:
            raise NotPlaced(f"it cannot be evaluated for {length} frames: {' '.join(str(error).split())}") from None
        return layout.kept(entries, sizes)

    ones = {name: 1 for name in made.names if name != frames}
    largest = max(others, key=lambda sizes: sum(_number(prefix, sizes) for prefix in layout.prefixes.values()))
    whole = entries_at(longest, largest)
    if whole.nbytes > MOST_BYTES:
        raise NotPlaced(f"a table of {whole.nbytes} bytes for {longest} frames is too large")
    for length in range(1, longest + 1):
        if not _same(entries_at(length, ones), layout.beginning(whole, length, ones)):
            raise NotPlaced(f"it is not the same for {length} frames and for {longest}")
    is_few = len(others) * longest <= MOST_RUNS
    lengths = range(1, longest + 1) if is_few else sorted({1, min(2, longest), longest})
    for sizes, length in itertools.product(others, lengths):
        if not _same(entries_at(length, sizes), layout.beginning(whole, length, sizes)):
            raise NotPlaced(DIFFERS)
    return whole


def _same(first: Array, second: Array) -> bool:
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=first.dtype.kind in "fc"))
