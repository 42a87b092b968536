"""One bucket of a graph: its static shapes, the buffers of its runs, and how feeds get into them and outputs out.

Buffers are arrays that are made once and used by every run. A run takes a set of them and gives it back when it has
succeeded; a set is never given out twice. Runs beside each other have sets of their own, and the set that was used last
goes out first. What a run that failed had is left to it. Runs of fewer rows than a bucket has, where a graph takes any
number of them, use the memory of that bucket.

What lies in padded places and free rows is zero by default; that it reaches no valid output is what the certificate
says, so any other filler gives the same answers. Free rows have the smallest length that was proved, and caches as
full as the emptiest of the rows in use: a graph that computes apart what is full (`specialize_full_caches`) then does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime_lite.calls.blocks import layout_of, rows_of
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BundleRefused
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph, Tensor, static_shape


class Places(dict[str, Array]):
    """Arrays in their static shapes by tensor name, made when they are first asked for.

    Args:
        tensors: of the graph.
        sizes: of every axis.
        within: arrays at sizes as large or larger, in whose memory they lie; None for memory of their own.
    """

    def __init__(self, tensors: tuple[Tensor, ...], sizes: Mapping[str, int], within: "Places | None" = None) -> None:
        """Make nothing yet."""
        super().__init__()
        self._tensors, self._sizes, self._within = tensors, sizes, within

    def __missing__(self, name: str) -> Array:
        """Make an array, which holds anything."""
        tensor = next(tensor for tensor in self._tensors if tensor.name == name)
        shape = static_shape(tensor.shape, self._sizes)
        memory = None if self._within is None else self._within[name]
        self[name] = np.empty(shape, tensor.dtype) if memory is None else np.ndarray(shape, tensor.dtype, memory)
        return self[name]


@dataclass(frozen=True, eq=False)
class Buffers:
    """What one run at a time writes to; whatever lay there before is there until it is written over.

    Attributes:
        inputs: what is gathered from several feeds, or padded.
        outputs: what is cut before a caller gets it.
        within: the set in whose memory they lie; None where that is their own.
    """

    inputs: Places
    outputs: Places
    within: "Buffers | None" = None


class Bucket:
    """One combination of buckets.

    Args:
        graph: the graph.
        sizes: bucket of every axis.
        within: the bucket of more rows in whose memory runs of these lie; None for a bucket that was built.

    Attributes:
        rows: of the batch axis; 1 without one.
        room: rows that its memory has.
        shapes: static shape of every input by name.
        dtypes: dtype of every input by name.
        answered: outputs of role data, each with its static shape.
        given: where outputs of role state lie that a call gives.
        joined: inputs that rows of feeds are joined to, and where those lie, or None.
        counted: inputs that take the true length of rows, each with its axis and where it has its rows.
        cached: cache axes, each with the input that takes its length and where that has its rows.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int], within: "Bucket | None" = None) -> None:
        """Make no buffers yet."""
        self.graph, self.sizes, self._within = graph, dict(sizes), within
        self.rows = 1 if graph.batch_axis is None else self.sizes[graph.batch_axis]
        self.room: int = self.rows if within is None else within.room
        self.shapes = {tensor.name: static_shape(tensor.shape, self.sizes) for tensor in graph.inputs}
        shapes = [(tensor, static_shape(tensor.shape, self.sizes)) for tensor in graph.outputs]
        self.answered = tuple(each for each in shapes if each[0].role == "data")
        self.given = layout_of((tensor.name, shape, tensor.dtype) for tensor, shape in shapes if tensor.role == "state")
        self.joined = tuple((tensor, graph.rows_at(tensor)) for tensor in graph.inputs if tensor.role == "data")
        axis_of = {axis.length_input: name for name, axis in graph.axes.items()}
        self.counted = tuple((t, axis_of[t.name], graph.rows_at(t)) for t in graph.inputs if t.name in axis_of)
        tensors = {tensor.name: tensor for tensor in graph.inputs}
        lengths = [(cache, tensors[cache.length_input]) for cache in graph.caches]
        self.cached = tuple((cache, tensor, graph.rows_at(tensor)) for cache, tensor in lengths)
        self.dtypes = {tensor.name: np.dtype(tensor.dtype) for tensor in graph.inputs}
        self._made = 0
        self._free: list[Buffers] = []

    @property
    def made(self) -> int:
        """Sets of buffers that there are: as many as there were runs at once."""
        return self._made if self._within is None else self._within.made

    def take(self) -> Buffers:
        """Return a set of buffers that no other run has."""
        graph, sizes = self.graph, self.sizes
        if self._within is not None:
            whole = self._within.take()
            inputs, outputs = whole.inputs, whole.outputs
            return Buffers(Places(graph.inputs, sizes, inputs), Places(graph.outputs, sizes, outputs), whole)
        try:
            return self._free.pop()
        except IndexError:
            self._made += 1
            return Buffers(Places(graph.inputs, sizes), Places(graph.outputs, sizes))

    def give_back(self, buffers: Buffers) -> None:
        """Take a set back: the run has ended well, and nobody has any of it."""
        if self._within is None:
            self._free.append(buffers)
        else:
            assert buffers.within is not None
            self._within.give_back(buffers.within)

    def trim(self) -> None:
        """Let go of the sets that no run has."""
        self._made -= len(self._free)
        self._free.clear()

    def lose(self) -> None:
        """Note that a set does not come back: its run has failed, and whoever was in it may still write there."""
        if self._within is None:
            self._made -= 1
        else:
            self._within.lose()


def full_feed(
    bucket: Bucket,
    feeds: Sequence[Feed],
    states: Sequence[StreamState],
    carried: Mapping[str, Any],
    buffers: Mapping[str, Array],
    fill: float = 0.0,
) -> dict[str, Any]:
    """Return every input of a graph in the static shape of a bucket.

    A feed that fills the bucket is not copied. Free rows hold the filler, the smallest length, that of the emptiest
    cache in use and its masks.

    Args:
        bucket: large enough for all of them.
        feeds: checked feeds, whose rows lie one after the other.
        states: what the stream of each feed carries.
        carried: their states in the static shape of the bucket, as `blocks.joined` returns them.
        buffers: what is written to where something is copied, by input.
        fill: what padded places of floating inputs hold; those of other inputs hold 0, which any table has.
    """
    full: dict[str, Any] = {**carried, **_cache_lengths(bucket, states)}
    for tensor, rows_at in bucket.joined:
        name = tensor.name
        arrays = [feed.arrays[name] for feed in feeds]
        if len(arrays) == 1 and arrays[0].shape == bucket.shapes[name]:
            full[name] = arrays[0]
        else:
            full[name] = buffers[name]
            _join(arrays, full[name], rows_at, fill if bucket.dtypes[name].kind == "f" else 0)
    for tensor, axis, rows_at in bucket.counted:
        full[tensor.name] = _lengths(bucket, tensor, feeds, axis, rows_at)
    return full


def _cache_lengths(bucket: Bucket, states: Sequence[StreamState]) -> dict[str, Array]:
    """The true lengths of the caches and their masks; without a batch axis all rows are those of one stream."""
    full: dict[str, Array] = {}
    for cache, tensor, rows_at in bucket.cached:
        valid = cache.valid(np.concatenate([state.lengths[cache.axis] for state in states]))
        full[tensor.name] = lengths = np.empty(bucket.shapes[tensor.name], bucket.dtypes[tensor.name])
        if rows_at is None:
            lengths[...] = valid
        else:
            lengths[: len(valid)] = valid
            if len(valid) < len(lengths):
                lengths[len(valid) :] = valid.min()
        if cache.mask_input is not None:
            full[cache.mask_input] = cache.mask(lengths).astype(bucket.dtypes[cache.mask_input])
    return full


def _join(arrays: Sequence[Array], place: Array, rows_at: int | None, fill: float) -> None:
    """Write arrays below each other into a place that is at least as large; what is left of it holds the filler."""
    if rows_at is not None and all(_fills(array, place, rows_at) for array in arrays):
        rows = sum(array.shape[rows_at] for array in arrays)
        np.concatenate(arrays, rows_at, out=rows_of(place, rows_at, 0, rows))
        place[(slice(None),) * rows_at + (slice(rows, None),)] = fill
        return
    place[...] = fill
    row = 0
    for array in arrays:
        places = [slice(size) for size in array.shape]
        if rows_at is not None:
            places[rows_at] = slice(row, row + array.shape[rows_at])
            row += array.shape[rows_at]
        place[tuple(places)] = array


def _fills(array: Array, place: Array, rows_at: int) -> bool:
    """Whether every row of an array is as large as those of a place."""
    shape = place.shape
    return array.shape[:rows_at] == shape[:rows_at] and array.shape[rows_at + 1 :] == shape[rows_at + 1 :]


def _lengths(bucket: Bucket, tensor: Tensor, feeds: Sequence[Feed], axis: str, rows_at: int | None) -> Array:
    """The true lengths along an axis, of one stream or one per row."""
    shape, dtype = bucket.shapes[tensor.name], bucket.dtypes[tensor.name]
    if rows_at is None:
        return np.full(shape, feeds[0].sizes[axis], dtype)
    lengths = np.full(shape, bucket.graph.axes[axis].minimum, dtype)
    valid = np.repeat([feed.sizes[axis] for feed in feeds], [feed.rows for feed in feeds])
    lengths[: len(valid)] = valid
    return lengths


def places_of_outputs(bucket: Bucket, feeds: Sequence[Feed], buffers: Mapping[str, Array]) -> dict[str, Array]:
    """Return what a run writes outputs of role data to.

    Args:
        bucket: where it runs.
        feeds: the feeds whose rows lie one after the other.
        buffers: by output, for what is cut; what a feed gets as it is has an array of its own.
    """
    if _is_whole(bucket, feeds):
        return {tensor.name: np.empty(shape, tensor.dtype) for tensor, shape in bucket.answered}
    return {tensor.name: buffers[tensor.name] for tensor, _ in bucket.answered}


def _is_whole(bucket: Bucket, feeds: Sequence[Feed]) -> bool:
    """Whether a single feed gets the outputs of a bucket as they are."""
    return len(feeds) == 1 and feeds[0].sizes == bucket.sizes


def cut_outputs(where: str, bucket: Bucket, full: Mapping[str, Array], feeds: Sequence[Feed]) -> list[dict[str, Array]]:
    """Return the valid part of every output of role data, for each feed, in arrays of its own.

    Args:
        where: what to call the graph in messages.
        bucket: where it ran.
        full: outputs in the static shape of the bucket, from `places_of_outputs`.
        feeds: the feeds whose rows lie one after the other.

    Raises:
        BundleRefused: a formula of the manifest counts more places than an output has, or fewer than none.
    """
    if _is_whole(bucket, feeds):
        return [{tensor.name: full[tensor.name] for tensor, _ in bucket.answered}]
    cut: list[dict[str, Array]] = []
    valid: list[tuple[str, Array, int | None]] = []
    row = 0
    for number, feed in enumerate(feeds):
        if not number or feed.sizes != feeds[number - 1].sizes:
            valid = [
                (tensor.name, _valid(f"{where}: {tensor.name!r}", tensor, full, feed, rows_at), rows_at)
                for tensor, _ in bucket.answered
                for rows_at in [bucket.graph.rows_at(tensor)]
            ]
        # copied, for the next run writes there
        cut.append({name: rows_of(array, rows_at, row, feed.rows).copy() for name, array, rows_at in valid})
        row += feed.rows
    return cut


def _valid(place: str, tensor: Tensor, full: Mapping[str, Array], feed: Feed, rows_at: int | None) -> Array:
    """What is valid of all rows of an output, if they are as long as those of a feed."""
    array, cuts = full[tensor.name], []
    for at, (size, slots) in enumerate(zip(tensor.shape, static_shape(tensor.shape, feed.sizes), strict=True)):
        if not 0 <= slots <= array.shape[at]:
            raise BundleRefused(
                f"{place}: expected from 0 to {array.shape[at]} valid places for {str(size)!r} at sizes "
                f"{dict(feed.sizes)}, got {slots}; rebuild the bundle"
            )
        cuts.append(slice(None if at == rows_at else slots))
    return array[tuple(cuts)]
