"""Writes feeds into the static shape of a bucket, and cuts the outputs back to their valid part.

What lies in padded places and free rows is zero by default; that it reaches no valid output is what the certificate
says, so any other filler gives the same answers. Free rows have the smallest length that was proved, and caches as
full as the emptiest of the rows in use: a graph that computes apart what is full (`specialize_full_caches`) then does.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from runtime_lite.calls.blocks import rows_of, whole_block
from runtime_lite.calls.bucket import Bucket
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BundleRefused
from runtime_lite.format.arrays import Array
from runtime_lite.format.initial_value import Number
from runtime_lite.format.manifest import Axis, Graph, Tensor, static_shape


def full_feed(
    bucket: Bucket,
    feeds: Sequence[Feed],
    states: Sequence[StreamState],
    carried: Sequence[Mapping[str, Array]],
    buffers: Mapping[str, Array],
    fill: float = 0.0,
) -> dict[str, Array]:
    """Return every input of a graph in the static shape of a bucket.

    What has that shape already is not copied: a feed that fills the bucket, and states that fill a block together.
    Free rows hold the filler, initial states, the smallest length, that of the emptiest cache in use and its masks.

    Args:
        bucket: large enough for all of them.
        feeds: checked feeds, whose rows lie one after the other.
        states: what the stream of each feed carries.
        carried: their values, each read once: they may come to lie elsewhere meanwhile.
        buffers: what is written to where something is copied, by input.
        fill: what padded places of floating inputs hold; those of other inputs hold 0, which any table has.
    """
    graph = bucket.graph
    full = _cache_lengths(graph, states, bucket.sizes) if graph.caches else {}
    block = whole_block(carried, bucket.rows)
    for tensor, rows_at, filler in bucket.joined:
        name = tensor.name
        if tensor.role == "data":
            arrays = [feed.arrays[name] for feed in feeds]
        elif block is not None:
            full[name] = block.arrays[name]
            continue
        else:
            arrays = [values[name] for values in carried]
        if len(arrays) == 1 and arrays[0].shape == bucket.shapes[name]:
            full[name] = arrays[0]
        else:
            full[name] = buffers[name]
            _join(arrays, full[name], rows_at, fill if filler is None else filler)
    for tensor, axis in bucket.counted:
        full[tensor.name] = _lengths(
            tensor, feeds, bucket.shapes[tensor.name], graph.rows_at(tensor), axis, graph.axes[axis]
        )
    return full


def _cache_lengths(graph: Graph, states: Sequence[StreamState], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The true lengths of the caches and their masks; without a batch axis all rows are those of one stream."""
    tensors = {tensor.name: tensor for tensor in graph.inputs}
    full: dict[str, Array] = {}
    for cache in graph.caches:
        tensor = tensors[cache.length_input]
        valid = cache.valid(np.concatenate([state.lengths[cache.axis] for state in states]))
        lengths = np.full(static_shape(tensor.shape, sizes), valid.min(), tensor.dtype)
        lengths[slice(None) if graph.rows_at(tensor) is None else slice(len(valid))] = valid
        full[cache.length_input] = lengths
        if cache.mask_input is not None:
            full[cache.mask_input] = cache.mask(lengths).astype(tensors[cache.mask_input].dtype)
    return full


def _join(arrays: Sequence[Array], place: Array, rows_at: int | None, fill: Number | Array) -> None:
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


def _lengths(
    tensor: Tensor, feeds: Sequence[Feed], shape: tuple[int, ...], rows_at: int | None, name: str, axis: Axis
) -> Array:
    if rows_at is None:
        return np.full(shape, feeds[0].sizes[name], tensor.dtype)
    lengths = np.full(shape, axis.minimum, tensor.dtype)
    valid = np.repeat([feed.sizes[name] for feed in feeds], [feed.rows for feed in feeds])
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
