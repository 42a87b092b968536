"""The state of one stream: what a graph carries from push to push, and the count of its valid frames.

All rows of a stream move in lock-step, so one `real_length` holds for all of them. A record is never changed: a push
that fails leaves the stream as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from runtime_lite.arrays import Array
from runtime_lite.manifest import BATCH_AXIS, Graph, static_shape


@dataclass(frozen=True)
class StreamState:
    """What is carried, for `rows` rows.

    Attributes:
        rows: number of rows; 1 and without meaning for a graph without a batch axis.
        real_length: valid cached frames, 0 before the first push.
        values: arrays by graph input of role state.
    """

    rows: int
    real_length: int
    values: Mapping[str, Array]


def initial_state(graph: Graph, rows: int) -> StreamState:
    """Return the state of a new stream."""
    sizes = {BATCH_AXIS: rows}
    values = {s.input: np.full(static_shape(s.shape, sizes), s.initial, s.dtype) for s in graph.states}
    return StreamState(rows, 0, values)


def next_state(graph: Graph, state: StreamState, outputs: Mapping[str, Array]) -> StreamState:
    """Return the state after a push whose outputs, cut back to the stream's rows, are given."""
    stream = graph.stream
    length = 0 if stream is None else min(state.real_length + stream.step_frames, stream.window)
    return replace(state, real_length=length, values={s.input: outputs[s.output] for s in graph.states})


def full_feed(graph: Graph, arrays: Mapping[str, Array], state: StreamState, batch_size: int) -> dict[str, Array]:
    """Return every input of a graph in the static shape of a bucket.

    Free rows hold zeros, initial states, `real_length` 0 and the mask that belongs to it.

    Args:
        graph: the graph.
        arrays: checked arrays of the inputs of role data, `state.rows` rows.
        state: the stream's state, `state.rows` rows.
        batch_size: the bucket of the batch axis, at least `state.rows`.
    """
    sizes = {BATCH_AXIS: batch_size}
    initial = {s.input: s.initial for s in graph.states}
    feed: dict[str, Array] = {}
    for tensor in graph.inputs:
        if tensor.role in ("data", "state"):
            array = arrays[tensor.name] if tensor.role == "data" else state.values[tensor.name]
            axis = tensor.shape.index(BATCH_AXIS) if BATCH_AXIS in tensor.shape else None
            feed[tensor.name] = (
                array if axis is None else pad_rows(array, axis, batch_size, initial.get(tensor.name, 0))
            )
        elif graph.stream is not None:
            shape = static_shape(tensor.shape, sizes)
            lengths = np.zeros(shape[0], np.int64)
            lengths[: state.rows if tensor.shape[0] == BATCH_AXIS else shape[0]] = state.real_length
            if tensor.role == "mask":
                slots = np.arange(shape[1])
                feed[tensor.name] = (slots >= graph.stream.window - lengths[:, None]).astype(tensor.dtype)
            else:
                feed[tensor.name] = lengths.astype(tensor.dtype)
    return feed


def pad_rows(array: Array, axis: int, size: int, fill: bool | int | float) -> Array:
    """Return the array with rows of `fill` added at the end of an axis up to a size; itself when it is full."""
    rows = array.shape[axis]
    if rows == size:
        return array
    padded = np.full((*array.shape[:axis], size, *array.shape[axis + 1 :]), fill, array.dtype)
    padded[(slice(None),) * axis + (slice(rows),)] = array
    return padded


def cut_rows(array: Array, axis: int, rows: int) -> Array:
    """Return the first rows of an axis as an array that owns its memory; itself when nothing is cut."""
    if array.shape[axis] == rows:
        return array
    return array[(slice(None),) * axis + (slice(rows),)].copy()  # a view would keep the whole bucket alive
