"""Writes feeds into the static shape of a bucket, and cuts the outputs back to what is valid.

What lies in padded places and free rows is zero by default; that it reaches no valid output is what the certificate
says, so any other filler gives the same answers. Free rows have the smallest length that was proved.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BundleRefused
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Axis, Graph, Tensor, static_shape


def full_feed(
    graph: Graph, feeds: Sequence[Feed], states: Sequence[StreamState], sizes: Mapping[str, int], fill: float = 0.0
) -> dict[str, Array]:
    """Return every input of a graph in the static shape of a bucket.

    Free rows hold the filler, initial states, the smallest length, caches of length 0 and the masks that belong to it.

    Args:
        graph: the graph.
        feeds: checked feeds, whose rows lie one after the other.
        states: what the stream of each feed carries.
        sizes: the bucket of every axis, large enough for all of them.
        fill: what padded places of floating inputs hold; those of other inputs hold 0, which any table has.
    """
    initial = {s.input: s.initial for s in graph.states}
    counted = {axis.length_input: (name, axis) for name, axis in graph.axes.items() if axis.length_input is not None}
    full = _cache_lengths(graph, states, sizes)
    for tensor in graph.inputs:
        shape, rows_at = static_shape(tensor.shape, sizes), graph.rows_at(tensor)
        if tensor.role == "data":
            filler = fill if tensor.dtype.startswith("float") else 0
            full[tensor.name] = _join([feed.arrays[tensor.name] for feed in feeds], shape, tensor, rows_at, filler)
        elif tensor.role == "state":
            values = [state.values[tensor.name] for state in states]
            full[tensor.name] = _join(values, shape, tensor, rows_at, initial[tensor.name])
        elif tensor.name in counted:
            full[tensor.name] = _lengths(tensor, feeds, shape, rows_at, *counted[tensor.name])
    return {tensor.name: full[tensor.name] for tensor in graph.inputs}


def _cache_lengths(graph: Graph, states: Sequence[StreamState], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The true lengths of the caches and their masks; without a batch axis all rows are those of one stream."""
    tensors = {tensor.name: tensor for tensor in graph.inputs}
    full: dict[str, Array] = {}
    for cache in graph.caches:
        tensor = tensors[cache.length_input]
        lengths = np.zeros(static_shape(tensor.shape, sizes), tensor.dtype)
        valid = np.concatenate([state.lengths[cache.axis] for state in states])
        lengths[slice(None) if graph.rows_at(tensor) is None else slice(len(valid))] = valid
        full[cache.length_input] = lengths
        if cache.mask_input is not None:
            full[cache.mask_input] = cache.mask(lengths).astype(tensors[cache.mask_input].dtype)
    return full


def _join(
    arrays: Sequence[Array], shape: tuple[int, ...], tensor: Tensor, rows_at: int | None, fill: bool | int | float
) -> Array:
    """Return arrays below each other in an array of a larger shape; the only one itself when it has that shape."""
    if len(arrays) == 1 and arrays[0].shape == shape:
        return arrays[0]
    joined = np.full(shape, fill, tensor.dtype)
    row = 0
    for array in arrays:
        places = [slice(size) for size in array.shape]
        if rows_at is not None:
            places[rows_at] = slice(row, row + array.shape[rows_at])
            row += array.shape[rows_at]
        joined[tuple(places)] = array
    return joined


def _lengths(
    tensor: Tensor, feeds: Sequence[Feed], shape: tuple[int, ...], rows_at: int | None, name: str, axis: Axis
) -> Array:
    if rows_at is None:
        return np.full(shape, feeds[0].sizes[name], tensor.dtype)
    lengths = np.full(shape, axis.minimum, tensor.dtype)
    valid = np.repeat([feed.sizes[name] for feed in feeds], [feed.rows for feed in feeds])
    lengths[: len(valid)] = valid
    return lengths


def cut_outputs(where: str, graph: Graph, full: Mapping[str, Array], feeds: Sequence[Feed]) -> list[dict[str, Array]]:
    """Return the valid part of every output of role data, for each feed.

    Args:
        where: what to call the graph in messages.
        graph: the graph.
        full: outputs in the static shape of a bucket.
        feeds: the feeds whose rows lie one after the other.

    Raises:
        BundleRefused: a formula of the manifest counts more places than an output has, or fewer than none.
    """
    cut: list[dict[str, Array]] = []
    row = 0
    for feed in feeds:
        outputs: dict[str, Array] = {}
        for tensor in graph.outputs:
            if tensor.role == "data":
                array = full[tensor.name]
                valid = static_shape(tensor.shape, feed.sizes)
                if valid == array.shape:
                    outputs[tensor.name] = array
                    continue
                _check_valid(f"{where}: {tensor.name!r}", tensor, array, valid, feed)
                starts = [row if size == graph.batch_axis else 0 for size in tensor.shape]
                places = tuple(slice(start, start + size) for start, size in zip(starts, valid, strict=True))
                outputs[tensor.name] = array[places].copy()  # a view would keep the whole bucket alive
        cut.append(outputs)
        row += feed.rows
    return cut


def _check_valid(place: str, tensor: Tensor, array: Array, valid: tuple[int, ...], feed: Feed) -> None:
    for size, slots, places in zip(tensor.shape, valid, array.shape, strict=True):
        if not 0 <= slots <= places:
            raise BundleRefused(
                f"{place}: expected from 0 to {places} valid places for {str(size)!r} at sizes {dict(feed.sizes)}, "
                f"got {slots}; rebuild the bundle with build.py"
            )


def cut_rows(array: Array, axis: int | None, start: int, rows: int) -> Array:
    """Return some rows of an axis as an array that owns its memory; itself when nothing is cut."""
    if axis is None or array.shape[axis] == rows:
        return array
    return array[(slice(None),) * axis + (slice(start, start + rows),)].copy()
