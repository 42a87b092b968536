"""Pads chunks of any length to the slots of a graph with states, and cuts the graph's outputs back.

    chunks of 5 and 3 -> features [2, 8, 80], chunk_length [5, 3] -> logits [2, 8, 30] -> [2, 5, 30], 3 of the second

The rows of one feed have the length of its arrays, unless the feed holds the length input itself: then the arrays are
as long as the longest row, and who feeds them knows what is valid of the outputs.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.graph import model as graphs
from compiler.graph.runners.callers_view import caller_dims
from compiler.graph.runners.padded_rows import SPARE, size_of
from compiler.graph.runners.session import Session
from compiler.graph.sizes.expressions import Dim
from compiler.graph.stages import Array, Feed, Lowered


class PaddedChunks:
    """What lies between a caller's chunks and a graph with a length per row.

    Args:
        lowered: the graph, with axes by name.
        dims: of its inputs and outputs, as callers see them.
        rows: of every call.
        buckets: slots by padded axis that there are graphs for, ascending; none while the axes are dynamic.
        fill: what lies behind the entries of real-valued inputs.
    """

    def __init__(
        self,
        lowered: Lowered,
        dims: Mapping[str, Sequence[Dim]],
        rows: int,
        buckets: Sequence[Mapping[str, int]] = (),
        fill: float = 0.0,
    ) -> None:
        self.lowered, self.dims, self.rows, self.buckets, self.fill = lowered, dims, rows, buckets, fill
        self.inputs = graphs.inputs_named(lowered.model)

    def lengths(self, feed: Feed) -> dict[str, Array]:
        """Return the true length of every row per padded axis, int64 [rows]."""
        found: dict[str, Array] = {}
        for each in self.lowered.padded_axes:
            if each.length_input in feed:
                found[each.axis] = np.asarray(feed[each.length_input], np.int64)
                continue
            name, at = self._place(each.axis, feed)
            found[each.axis] = np.full(self.rows, feed[name].shape[at], np.int64)
        return found

    def _place(self, axis: str, feed: Feed) -> tuple[str, int]:
        symbol = graphs.symbol(axis)
        return next((name, dims.index(symbol)) for name in feed if symbol in (dims := list(self.dims.get(name, ()))))

    def padded(self, feed: Feed) -> dict[str, Array]:
        """Return a feed with its padding and the true lengths."""
        lengths = self.lengths(feed)
        if not lengths:
            return dict(feed)
        slots = self._slots(lengths)
        full = {name: self.filled(name, array, slots) for name, array in feed.items()}
        return full | self._told(lengths, slots)

    def _told(self, lengths: Mapping[str, Array], slots: Mapping[str, int]) -> dict[str, Array]:
        """Return the true lengths, with the length and mask inputs of the model while nothing is padded."""
        told: dict[str, Array] = {each.length_input: lengths[each.axis] for each in self.lowered.padded_axes}
        named = {**slots, **self._rows_by_name()}
        for each in self.lowered.padded_axes:
            for name in {*each.length_inputs, *each.masks} & self.inputs.keys():
                dtype, shape = self.inputs[name].dtype, tuple(size_of(dim, named) for dim in self.dims[name])
                assert dtype is not None
                number = each.masks.get(name)
                given = lengths[each.axis].reshape(shape) if number is None else np.full(shape, number)
                told[name] = given.astype(dtype.numpy())
        return told

    def _rows_by_name(self) -> dict[str, int]:
        return {} if self.lowered.batch_axis is None else {self.lowered.batch_axis: self.rows}

    def _slots(self, lengths: Mapping[str, Array]) -> Mapping[str, int]:
        """Return the number of slots: the smallest fitting bucket's, or the longest row's, plus spare ones."""
        longest = {axis: int(rows.max()) for axis, rows in lengths.items()}
        for bucket in self.buckets:
            if all(size <= bucket[axis] for axis, size in longest.items()):
                return bucket
        if not self.lowered.is_padded:
            return longest
        most = {each.axis: each.maximum for each in self.lowered.padded_axes}
        return {axis: min(size + SPARE, max(most[axis] or size + SPARE, size)) for axis, size in longest.items()}

    def filled(self, name: str, array: Array, slots: Mapping[str, int]) -> Array:
        """Return an array of a feed, padded to `slots` slots."""
        dims = self.dims.get(name, ())
        behind = [
            (0, slots[str(dim)] - size) if str(dim) in slots else (0, 0)
            for dim, size in zip(dims, array.shape, strict=False)
        ]
        if not any(after for _, after in behind):
            return array
        with np.errstate(over="ignore"):  # a huge value is infinite in half precision
            fill = np.array(self.fill if array.dtype.kind == "f" else 0).astype(array.dtype)
        return np.pad(array, behind, constant_values=fill)

    def valid(self, name: str, array: Array, lengths: Mapping[str, int]) -> tuple[slice, ...]:
        """Return the index of an output's valid entries at these lengths, for all rows.

        An axis that holds the frames of all rows in sequence has those of a single row in front.
        """
        place = [slice(None)] * array.ndim
        sizes = {**lengths, **self._rows_by_name()}
        if self.lowered.is_padded:
            for at, dim in enumerate(self.dims.get(name, ())[: array.ndim]):
                if any(graphs.mentions(dim, axis) for axis in lengths):
                    place[at] = slice(max(size_of(dim, sizes), 0))
        return tuple(place)

    def longest(self, feed: Feed) -> dict[str, int]:
        """Return the length of the longest row, by padded axis."""
        return {axis: int(rows.max()) for axis, rows in self.lengths(feed).items()}

    def without_padding(self, outputs: Mapping[str, Array], feed: Feed) -> dict[str, Array]:
        """Return outputs without the padding behind the longest row."""
        longest = self.longest(feed)
        return {name: array[self.valid(name, array, longest)] for name, array in outputs.items()}

    def added(self, feed: Feed) -> dict[str, Array | int]:
        """Return the frames that a call adds to every row, by cache axis."""
        lengths = self.lengths(feed)
        rows = [{axis: int(each[row]) for axis, each in lengths.items()} for row in range(self.rows)]
        return {
            cache.axis: cache.step if cache.added is None else np.array([cache.frames_of(row) for row in rows])
            for cache in self.lowered.caches
        }


def side_by_side(lowered: Lowered, rows: Sequence[Feed], fill: float = 0.0) -> dict[str, Array]:
    """Return feeds of one row each as one feed, padded and with lengths where their chunks differ in length.

    Args:
        lowered: the graph, with axes by name.
        rows: the feeds, in order.
        fill: number that pads shorter rows, for floats.
    """
    if len(rows) == 1:
        return dict(rows[0])
    one = PaddedChunks(lowered, caller_dims(lowered), 1, fill=fill)
    lengths = [{axis: int(length[0]) for axis, length in one.lengths(row).items()} for row in rows]
    slots = {axis: max(row_lengths[axis] for row_lengths in lengths) for axis in lengths[0]}
    joined = {name: np.concatenate([one.filled(name, row[name], slots) for row in rows]) for name in rows[0]}
    if all(row_lengths == slots for row_lengths in lengths):
        return joined
    counted = {
        padded_axis.length_input: np.array([row[padded_axis.axis] for row in lengths], np.int64)
        for padded_axis in lowered.padded_axes
    }
    return {**joined, **counted}


def rows_of(array: Array, expected: Sequence[Array], *, has_rows: bool) -> list[Array]:
    """Return the rows of an output, each sliced to the shape of its expected result."""
    if not has_rows:
        return [array]
    valid = [tuple(slice(size) for size in each.shape[1:]) for each in expected]
    return [array[(slice(row, row + 1), *sizes)] for row, sizes in enumerate(valid)]


class SessionOfBuckets:
    """One session per number of slots, as one: what runs is the graph whose slots a feed has.

    Args:
        sessions: by slots, in the order of `axes`.
        dims: of the inputs.
        axes: the padded axes.
    """

    def __init__(
        self, sessions: Mapping[tuple[int, ...], Session], dims: Mapping[str, Sequence[Dim]], axes: Sequence[str]
    ) -> None:
        self.sessions = sessions
        self.places = []
        for axis in axes:
            symbol = graphs.symbol(axis)
            self.places.append(
                next((name, list(each).index(symbol)) for name, each in dims.items() if symbol in list(each))
            )

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        """Return outputs in the order of `names`."""
        slots = tuple(feeds[name].shape[at] for name, at in self.places)
        return self.sessions[slots].run(names, feeds)
