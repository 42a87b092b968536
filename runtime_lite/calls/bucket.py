"""Implements one bucket of a graph: holds the buffers of its runs, copies feeds in and slices outputs out.

Buffers are arrays that are allocated once and reused by later runs. A run takes a set of buffers and returns it when it
has succeeded. Runs at the same time have different sets, and the set that was returned last is taken first. The set of
a failed run is not used again. If a graph takes any number of rows, runs of fewer rows than the bucket use the memory
of the bucket.

Padding and free rows are filled with zeros by default. The certificate proves that they reach no valid output, so any
other filler gives the same answers. Free rows have the smallest length that was proved, and as many cached frames as
the emptiest row in use; so they do not prevent the branch for full caches (`specialize_full_caches`).
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
    """Arrays in their static shapes by tensor name, each allocated when it is first read.

    Args:
        tensors: inputs or outputs of the graph.
        sizes: size of every axis.
        within: arrays of the same or larger sizes whose memory is used; None to allocate memory.
    """

    def __init__(self, tensors: tuple[Tensor, ...], sizes: Mapping[str, int], within: "Places | None" = None) -> None:
        """Start without arrays."""
        super().__init__()
        self._tensors, self._sizes, self._within = tensors, sizes, within

    def __missing__(self, name: str) -> Array:
        """Allocate an array; its values are undefined."""
        tensor = next(tensor for tensor in self._tensors if tensor.name == name)
        shape = static_shape(tensor.shape, self._sizes)
        memory = None if self._within is None else self._within[name]
        self[name] = np.empty(shape, tensor.dtype) if memory is None else np.ndarray(shape, tensor.dtype, memory)
        return self[name]


@dataclass(frozen=True, eq=False)
class Buffers:
    """The arrays that one run at a time writes to; old values stay in them until they are overwritten.

    Attributes:
        inputs: inputs that are gathered from several feeds, or padded.
        outputs: outputs that are sliced before a caller gets them.
        within: the set whose memory they use; None if they have memory of their own.
    """

    inputs: Places
    outputs: Places
    within: "Buffers | None" = None


class Bucket:
    """One combination of buckets of a graph's axes, with the buffers of its runs.

    Args:
        graph: the graph.
        sizes: bucket of every axis.
        within: the larger bucket whose memory is used; None for a bucket that was built.

    Attributes:
        rows: size of the batch axis; 1 without one.
        shapes: static shape of every input by name.
        dtypes: dtype of every input by name.
        answered: the outputs of role data with their static shapes.
        given: layout of the outputs of role state in one block of memory.
        joined: the inputs of role data, each with its batch axis, or None without one.
        counted: the inputs of true lengths, each with the axis that they count and its batch axis, or None.
        cached: the cache axes, each with the input of its length and the batch axis of that input, or None.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int], within: "Bucket | None" = None) -> None:
        """Compute the shapes; no buffers are allocated yet."""
        self.graph, self.sizes, self._within = graph, dict(sizes), within
        self.rows = 1 if graph.batch_axis is None else self.sizes[graph.batch_axis]
        self.shapes = {tensor.name: static_shape(tensor.shape, self.sizes) for tensor in graph.inputs}
        shapes = [(tensor, static_shape(tensor.shape, self.sizes)) for tensor in graph.outputs]
        self.answered = tuple(pair for pair in shapes if pair[0].role == "data")
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
        """Number of sets of buffers: the largest number of runs at one time."""
        return self._made if self._within is None else self._within.made

    def take(self) -> Buffers:
        """Return a set of buffers that no other run uses."""
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
        """Return a set of buffers for reuse, after a run has succeeded and no reference to its arrays is left."""
        if self._within is None:
            self._free.append(buffers)
        else:
            assert buffers.within is not None
            self._within.give_back(buffers.within)

    def trim(self) -> None:
        """Free the sets of buffers that no run uses."""
        self._made -= len(self._free)
        self._free.clear()

    def lose(self) -> None:
        """Count a set of buffers as lost: its run has failed, and the backend may still write to it."""
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

    A feed that fills the bucket is not copied. Free rows hold the filler, the smallest proved length, and the cache
    length and masks of the emptiest row in use.

    Args:
        bucket: a bucket that holds all feeds.
        feeds: checked feeds, whose rows lie one after the other.
        states: the state of the stream of each feed.
        carried: the arrays of these states in the static shape of the bucket, as `blocks.joined` returns them.
        buffers: arrays to write copies to, by input.
        fill: value of the padding of floating-point inputs. Other inputs are padded with 0, which is a valid index.
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
    """Return the inputs of cache lengths and of their masks, by name.

    Without a batch axis, all rows are those of one stream.
    """
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
    """Write arrays one after the other along the batch axis into a larger one, and fill the rest of it."""
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
    """Return whether the rows of an array are as large as those of the array `place`."""
    shape = place.shape
    return array.shape[:rows_at] == shape[:rows_at] and array.shape[rows_at + 1 :] == shape[rows_at + 1 :]


def _lengths(bucket: Bucket, tensor: Tensor, feeds: Sequence[Feed], axis: str, rows_at: int | None) -> Array:
    """Return the input of true lengths along an axis: one for a single stream, or one per row."""
    shape, dtype = bucket.shapes[tensor.name], bucket.dtypes[tensor.name]
    if rows_at is None:
        return np.full(shape, feeds[0].sizes[axis], dtype)
    lengths = np.full(shape, bucket.graph.axes[axis].minimum, dtype)
    valid = np.repeat([feed.sizes[axis] for feed in feeds], [feed.rows for feed in feeds])
    lengths[: len(valid)] = valid
    return lengths


def places_of_outputs(bucket: Bucket, feeds: Sequence[Feed], buffers: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that a run writes its outputs of role data to.

    Args:
        bucket: the bucket of the run.
        feeds: the feeds whose rows lie one after the other.
        buffers: arrays by output, used if outputs are sliced; otherwise new arrays are made, which the caller gets.
    """
    if _is_whole(bucket, feeds):
        return {tensor.name: np.empty(shape, tensor.dtype) for tensor, shape in bucket.answered}
    return {tensor.name: buffers[tensor.name] for tensor, _ in bucket.answered}


def _is_whole(bucket: Bucket, feeds: Sequence[Feed]) -> bool:
    """Return whether a single feed fills the bucket, so that its outputs need no slicing."""
    return len(feeds) == 1 and feeds[0].sizes == bucket.sizes


def cut_outputs(where: str, bucket: Bucket, full: Mapping[str, Array], feeds: Sequence[Feed]) -> list[dict[str, Array]]:
    """Return for each feed copies of the valid part of every output of role data.

    Args:
        where: name of the graph in messages.
        bucket: the bucket of the run.
        full: outputs in the static shape of the bucket, from `places_of_outputs`.
        feeds: the feeds whose rows lie one after the other.

    Raises:
        BundleRefused: a formula of the manifest gives a negative size or one larger than the output.
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
    """Return the valid part of an output, all rows of it, at the sizes of one feed."""
    array, cuts = full[tensor.name], []
    for at, (size, slots) in enumerate(zip(tensor.shape, static_shape(tensor.shape, feed.sizes), strict=True)):
        if not 0 <= slots <= array.shape[at]:
            raise BundleRefused(
                f"{place}: expected from 0 to {array.shape[at]} valid places for {str(size)!r} at sizes "
                f"{dict(feed.sizes)}, got {slots}; rebuild the bundle"
            )
        cuts.append(slice(None if at == rows_at else slots))
    return array[tuple(cuts)]
