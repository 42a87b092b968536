"""Writes nodes that compute a position-dependent value for the frames of a call: by counting, comparison or lookup.

An evaluated value is a table over one or two axes of positions. The first form that gives all of its entries is
written:

    constant      one entry, repeated
    counted       place + c
    compared      low <= row - column <= high, of two numbers: causal masks, bands
    by distance   an entry per row - column: relative positions, slopes
    looked up     rows and columns of the table itself
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import dims
from compiler.graph.model import Dim
from compiler.proof.derivation.placed import Array, Placed
from compiler.proof.derivation.written_sizes import STAMP, Part, Sizes, written_size

Asked: TypeAlias = Mapping[int, tuple[Part, Dim, Dim | None]]
"""By time axis: which part is asked for, how many entries of the table lie in front of its frames, and how often the
only one of them is there."""


@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
    """A table of two numbers.

    Attributes:
        low: the least row - column that is inside; None where no place lies below.
        high: the largest; None where no place lies above.
        inside: the number there.
        outside: the number elsewhere.
    """

    low: int | None
    high: int | None
    inside: Array
    outside: Array


def varying(table: Placed) -> tuple[int, ...]:
    """Return the time axes along which a table's entries are not all equal."""
    found = []
    for at in table.along:
        first = np.take(table.array, [0], at)
        if not _equal(np.broadcast_to(first, table.array.shape), table.array):
            found.append(at)
    return tuple(found)


def by_distance(array: Array, row: int, column: int) -> Array | None:
    """Return the entries by row - column, [2 * longest - 1, ...], from the largest column; None where they differ.

    Args:
        array: entries over both axes.
        row: the first axis.
        column: the second axis.
    """
    square = np.moveaxis(array, (row, column), (0, 1))
    longest = len(square)
    if square.shape[1] != longest:
        return None
    places = np.arange(longest)
    distances: Array = np.concatenate([square[0, :0:-1], square[:, 0]])
    return distances if _equal(distances[places[:, None] - places + longest - 1], square) else None


def compared(distances: Array) -> Compared | None:
    """Return a table by distance as an interval with one value inside and one outside; None for other tables."""
    entries = distances.reshape(len(distances), -1)
    if entries.shape[1] != 1:
        return None
    flat, reach = entries[:, 0], len(entries) // 2
    for inside in (flat[reach], flat[0], flat[-1]):
        places = np.flatnonzero([_equal(entry, inside) for entry in flat])
        others = flat[[not _equal(entry, inside) for entry in flat]]
        whole = len(places) == places[-1] - places[0] + 1
        if whole and others.size and _equal(np.full_like(others, others[0]), others):
            low, high = int(places[0]) - reach, int(places[-1]) - reach
            return Compared(None if low == -reach else low, None if high == reach else high, inside, others[0])
    return None


class Placing:
    """Writes tables of places into one derived graph.

    Args:
        model: the derived graph.
        sizes: its sizes.
    """

    def __init__(self, model: ir.Model, sizes: Sizes) -> None:
        self.model, self.sizes = model, sizes

    def written(self, value: ir.Value, table: Placed, parts: Mapping[int, Part], shape: Sequence[Dim]) -> ir.Value:
        """Write a part of a value of positions, and return it.

        Args:
            value: a value of the graph over whole sequences.
            table: its entries.
            parts: the part needed along each of its time axes.
            shape: shape of the part, in the axes of the derived graph.
        """
        insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(value.producer()))
        moving, array, name = varying(table), table.array, str(value.name)
        asked = {axis: (part, table.prefixes.get(axis, 0), table.repeated.get(axis)) for axis, part in parts.items()}
        for axis in table.along:
            array = array if axis in moving else np.take(array, [0], axis)
        if not moving:
            result = insert.constant(array, name)
        elif len(moving) == 1:
            result = self._along_one(insert, array, moving[0], asked, name)
        else:
            result = self._along_two(insert, array, moving, asked, name)
        if any(not isinstance(dim, int) and axis not in moving for axis, dim in enumerate(dims(value))):
            result = insert.op("Expand", [result, self.sizes.several(shape, name)], name=name)
        result.shape = ir.Shape([written_size(size) for size in shape])
        return result

    def counted(self, value: ir.Value, start: Dim, part: Part, before: Dim) -> ir.Value:
        """Write consecutive numbers along an axis of a prefix and frames.

        Args:
            value: a value of one axis, of the graph over whole sequences.
            start: the first number.
            part: the part that is needed.
            before: entries of the axis in front of its frames.
        """
        insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(value.producer()))
        kind, name = value.dtype or ir.DataType.INT64, str(value.name)
        numbers = self.sizes.places(part, insert.source, before)
        if kind != ir.DataType.INT64:
            numbers = insert.op("Cast", [numbers], {"to": int(kind)}, name=name, shape=numbers.shape, dtype=kind)
        if start == 0:
            return numbers
        return insert.op("Add", [numbers, self.sizes.scalar(start, kind)], name=name, shape=numbers.shape, dtype=kind)

    def _along_one(self, insert: graphs.Inserter, array: Array, axis: int, asked: Asked, name: str) -> ir.Value:
        longest = array.shape[axis]
        start = int(array.flat[0]) if array.dtype.kind in "iu" else 0
        places = self._places(insert, asked, axis, 1, 0)
        if array.dtype == np.int64 and array.size == longest and _equal(array.reshape(-1), start + np.arange(longest)):
            found = insert.op("Add", [places, insert.int64s(start)], name=name) if start else places
            others = [at for at in range(array.ndim) if at != axis]
            return insert.op("Unsqueeze", [found, insert.int64s(*others)], name=name) if others else found
        return self._looked_up(
            insert, np.moveaxis(array, axis, 0), self._bounded(insert, places, longest), (axis,), name
        )

    def _along_two(
        self, insert: graphs.Inserter, array: Array, axes: tuple[int, ...], asked: Asked, name: str
    ) -> ir.Value:
        row, column = axes
        distances = by_distance(array, row, column)
        bounds = None if distances is None else compared(distances)
        if bounds is not None:
            return self._compared(insert, bounds, array.ndim, axes, asked, name)
        longest = array.shape[column]
        rows, columns = (self._places(insert, asked, axis, 2, position) for position, axis in enumerate(axes))
        if distances is None:
            rows, columns = (
                self._bounded(insert, places, array.shape[axis])
                for places, axis in zip((rows, columns), axes, strict=True)
            )
            square = np.moveaxis(array, axes, (0, 1))
            from_row = insert.op("Mul", [rows, insert.int64s(longest)], name="before_row")
            place = insert.op("Add", [from_row, columns], name="places_in_table")
            return self._looked_up(insert, square.reshape(-1, *square.shape[2:]), place, axes, name)
        apart = insert.op("Add", [rows, insert.int64s(longest - 1)], name="rows_from_last")
        apart = insert.op("Sub", [apart, columns], name="distances")
        apart = insert.op("Max", [self._bounded(insert, apart, len(distances)), insert.int64s(0)], name="distances")
        return self._looked_up(insert, distances, apart, axes, name)

    def _compared(
        self,
        insert: graphs.Inserter,
        bounds: Compared,
        rank: int,
        axes: tuple[int, ...],
        asked: Asked,
        name: str,
    ) -> ir.Value:
        rows, columns = (self._places(insert, asked, axis, rank) for axis in axes)
        holds: ir.Value | None = None
        for bound, compares in ((bounds.low, "LessOrEqual"), (bounds.high, "GreaterOrEqual")):
            if bound is None:
                continue
            limit = insert.op("Sub", [rows, insert.int64s(bound)], name="limit") if bound else rows
            within = insert.op(compares, [columns, limit], name="within", dtype=ir.DataType.BOOL)
            holds = within if holds is None else insert.op("And", [holds, within], name="within")
        assert holds is not None
        if bounds.inside.dtype.kind == "b":
            return holds if bounds.inside else insert.op("Not", [holds], name=name)
        numbers = [insert.constant(np.asarray(number), name) for number in (bounds.inside, bounds.outside)]
        return insert.op("Where", [holds, *numbers], name=name, dtype=numbers[0].dtype)

    def _looked_up(
        self, insert: graphs.Inserter, table: Array, places: ir.Value, axes: tuple[int, ...], name: str
    ) -> ir.Value:
        """Look up rows of a table by positions, and move the axes of the positions to their place."""
        rank = len(axes) + table.ndim - 1
        looked = insert.op("Gather", [insert.constant(table, name), places], {"axis": 0}, name=name)
        order = [*axes, *(at for at in range(rank) if at not in axes)]
        turned = [order.index(at) for at in range(rank)]
        return looked if turned == sorted(turned) else insert.op("Transpose", [looked], {"perm": turned}, name=name)

    @staticmethod
    def _bounded(insert: graphs.Inserter, places: ir.Value, longest: int) -> ir.Value:
        """Clamp positions to the table: padded frames behind the end of a chunk may lie beyond it."""
        return insert.op("Min", [places, insert.int64s(longest - 1)], name="places_within")

    def _places(self, insert: graphs.Inserter, asked: Asked, axis: int, rank: int, to: int | None = None) -> ir.Value:
        """Return positions along an axis, with axes of size 1 added to reach a rank."""
        part, before, repeated = asked[axis]
        places = self.sizes.places(part, insert.source, before, repeated)
        others = [at for at in range(rank) if at != (axis if to is None else to)]
        return insert.op("Unsqueeze", [places, insert.int64s(*others)], name="places_along") if others else places


def _equal(first: Array, second: Array) -> bool:
    return bool(np.array_equal(first, second, equal_nan=np.asarray(first).dtype.kind in "fc"))
