"""Runs a graph on a padded batch of rows of any lengths, and cuts each row's valid entries from its outputs.

    rows of 5 and 3 -> features [4, 8, 80], lengths [5, 3, 1, 1] -> logits [4, 4, 30] -> [1, 2, 30] and [1, 1, 30]

The sizes of outputs are the formulas that shape inference has written: at slots they give the size of an array, at the
true lengths of a row how much of it is valid.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.errors import DataError, Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.callers_view import caller_dims, for_callers
from compiler.graph.runners.session import Session
from compiler.graph.sizes.expressions import Dim
from compiler.graph.stages import Array, Feed, Lowered

SPARE = 3
"""Slots beyond the longest row where the number of slots is free, so that there is padding to look at."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes that a graph was frozen to.

    Attributes:
        rows: rows of every call.
        slots: by padded axis.
    """

    rows: int
    slots: Mapping[str, int]

    def hold(self, lengths: Mapping[str, int]) -> bool:
        """Whether a row of these lengths fits."""
        return all(length <= self.slots[axis] for axis, length in lengths.items())


class RowsRunner:
    """Runs a graph without states whose axes are, or will be, padded behind.

    Args:
        lowered: the graph's record, with axes by name.
        session: runs it, or the graph that was frozen from it.
        sizes: the sizes that its axes were frozen to; None while they are dynamic.
        fill: what lies in padded slots and in free rows of real-valued inputs.
    """

    def __init__(self, lowered: Lowered, session: Session, sizes: Sizes | None = None, fill: float = 0.0) -> None:
        self.lowered, self.session, self.sizes, self.fill = lowered, for_callers(session, lowered), sizes, fill
        self.states: dict[str, Array] = {}
        self.lengths: dict[str, Array] = {}
        self.inputs = {str(value.name): value for value in lowered.model.graph.inputs}
        self.dims = caller_dims(lowered)
        self.formulas = {name: self.dims[name] for name in graphs.outputs_named(lowered.model)}
        self.batch = lowered.batch_axis

    def lengths_of(self, row: Feed) -> dict[str, int]:
        """Return the length of a row per padded axis."""
        found = {}
        for each in self.lowered.padded_axes:
            for name, array in row.items():
                dims = self.dims.get(name, ())
                places = [at for at, dim in enumerate(dims) if dim == graphs.symbol(each.axis)]
                if places:
                    found[each.axis] = array.shape[places[0]]
        return found

    def step(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        """Return the valid outputs of one row; `more` are further inputs of the graph."""
        return self._without_padding([feed], self._run([feed], more))[0]

    def call(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        """Return the outputs of one row, with padding."""
        return self._run([feed], more)

    def full_feed(self, feed: Feed) -> dict[str, Array]:
        """Return every input of a call of one row."""
        return self._full_feed([feed])

    def valid(self, name: str, array: Array, feed: Feed) -> tuple[slice, ...]:
        """Return the index of the valid entries in an output of one row."""
        return self.place_of(name, 0, self.lengths_of(feed))

    def reset(self, states: Mapping[str, Array] | None = None, lengths: Mapping[str, Array] | None = None) -> None:
        """Do nothing, as every call is a first one."""

    def run(self, rows: Sequence[Feed], fill: float | None = None) -> list[dict[str, Array]]:
        """Run rows together, and return the valid outputs of each.

        Args:
            rows: data inputs of one row each.
            fill: number in padded slots and free rows of this call; the runner's own if None.
        """
        return self._without_padding(rows, self._run(rows, fill=fill))

    def _without_padding(self, rows: Sequence[Feed], outputs: Mapping[str, Array]) -> list[dict[str, Array]]:
        return [
            {name: array[self.place_of(name, row, lengths)] for name, array in outputs.items()}
            for row, lengths in enumerate(map(self.lengths_of, rows))
        ]

    def _run(self, rows: Sequence[Feed], more: Feed | None = None, fill: float | None = None) -> dict[str, Array]:
        full = self._full_feed(rows, more, fill)
        return dict(zip(self.formulas, self.session.run(list(self.formulas), full), strict=True))

    def _full_feed(self, rows: Sequence[Feed], more: Feed | None = None, fill: float | None = None) -> dict[str, Array]:
        """Return rows as one batch with their lengths, padded to the slots and rows of the call."""
        lengths = [self.lengths_of(row) for row in rows]
        sizes = self.sizes or Sizes(len(rows), self._slots(lengths))
        fill = self.fill if fill is None else fill
        return {**self._feed(rows, lengths, sizes, fill, (more or {}).keys()), **(more or {})}

    def _slots(self, lengths: Sequence[Mapping[str, int]]) -> dict[str, int]:
        """Return the number of slots for these rows: the longest row's, plus spare ones once the graph is padded."""
        found = {}
        for each in self.lowered.padded_axes:
            longest = max(row[each.axis] for row in lengths)
            spare = longest + SPARE if self.lowered.is_padded else longest
            found[each.axis] = spare if each.maximum is None else max(longest, min(spare, each.maximum))
        return found

    def _feed(
        self,
        rows: Sequence[Feed],
        lengths: Sequence[Mapping[str, int]],
        sizes: Sizes,
        fill: float,
        given: Collection[str] = (),
    ) -> dict[str, Array]:
        free = [{padded_axis.axis: padded_axis.minimum for padded_axis in self.lowered.padded_axes}] * (
            sizes.rows - len(rows)
        )
        full = {}
        for padded_axis in self.lowered.padded_axes:
            counted = np.array([row[padded_axis.axis] for row in (*lengths, *free)])
            for name in {padded_axis.length_input, *padded_axis.length_inputs} & self.inputs.keys():
                full[name] = counted.astype(_dtype(self.inputs[name])).reshape(self._shape(name, sizes))
            for name in padded_axis.masks.keys() & self.inputs.keys():
                full[name] = np.full(self._shape(name, sizes), padded_axis.masks[name], _dtype(self.inputs[name]))
        for name in self.inputs.keys() - full.keys() - set(given):
            full[name] = self._side_by_side(name, [row[name] for row in rows], sizes, fill)
        return full

    def _shape(self, name: str, sizes: Sizes) -> tuple[int, ...]:
        named = {**sizes.slots, **({} if self.batch is None else {self.batch: sizes.rows})}
        return tuple(size_of(dim, named) for dim in self.dims[name])

    def _side_by_side(self, name: str, arrays: Sequence[Array], sizes: Sizes, fill: float) -> Array:
        joined = np.zeros(self._shape(name, sizes), _dtype(self.inputs[name]))
        if joined.dtype.kind == "f":
            with np.errstate(over="ignore"):  # a huge value is infinite in half precision
                joined[...] = np.array(fill).astype(joined.dtype)
        has_rows = not self.is_shared(name)
        for row, array in enumerate(arrays if has_rows else [self._longest(name, arrays)]):
            place = tuple(slice(size) for size in array.shape)
            joined[(slice(row, row + 1), *place[1:]) if has_rows else place] = array
        return joined

    def is_shared(self, name: str) -> bool:
        """Whether an input has no rows: one array for all, which each row reads up to its own length."""
        return self.batch is None or graphs.symbol(self.batch) not in self.dims[name]

    def shares(self, row: Feed, longest: Feed) -> bool:
        """Whether a row can run beside a longer one: their shared inputs agree as far as the shorter goes."""
        return all(_begins_with(longest[name], row[name]) for name in row if self.is_shared(name))

    def _longest(self, name: str, arrays: Sequence[Array]) -> Array:
        """Return the longest of the arrays of an input shared by all rows.

        Raises:
            DataError: another row's array is no prefix of it.
        """
        longest = max(arrays, key=np.size)
        if not all(_begins_with(longest, array) for array in arrays):
            raise DataError(
                "expected the same entries in every row of one call, as the input has no batch axis, got others",
                cure="yield the same for every row, or give the input the batch axis",
                place=Location(graph=self.lowered.graph, tensor=name),
            )
        return longest

    def place_of(self, name: str, row: int, lengths: Mapping[str, int]) -> tuple[slice, ...]:
        """Return the index of the valid entries of a row of these lengths in an output."""
        sizes = {**lengths, **({} if self.batch is None else {self.batch: 1})}
        place = []
        for dim in self.formulas[name]:
            try:
                size = size_of(dim, sizes)
            except Refused as refused:
                maker = graphs.outputs_named(self.lowered.model)[name].producer()
                places = {"node": str(maker.name), "op": maker.op_type} if maker is not None else {}
                raise refused.at(tensor=name, **places, source=graphs.source_of(maker)) from None
            has_rows = self.batch is not None and graphs.mentions(dim, self.batch)
            place.append(slice(row * size, (row + 1) * size) if has_rows else slice(size))
        return tuple(place)


def _begins_with(longest: Array, array: Array) -> bool:
    """Whether an array is the first part of a longer one along every axis."""
    return np.array_equal(longest[tuple(slice(size) for size in array.shape)], array, equal_nan=array.dtype.kind == "f")


def _dtype(value: ir.Value) -> np.dtype:
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())


def size_of(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return a dimension at given sizes of its axes.

    Raises:
        Refused: the dimension depends on other axes.
    """
    if isinstance(dim, int):
        return dim
    size = dim.subs({graphs.symbol(name): size for name, size in sizes.items()})
    if not size.is_number:
        raise Refused(
            f"expected sizes that follow from {', '.join(sizes)}, got an axis of {dim} entries",
            cure="compute sizes of the lengths of inputs, in int64, or declare the axis in the recipe",
        )
    return int(size)
