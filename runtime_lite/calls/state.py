"""Defines the state of one stream: the arrays that a graph passes from call to call, and its length along each axis.

Lengths are counted per cache and per row, as the rows of one call may be streams of different ages. A push makes a new
state and does not change the one it starts from; `blocks.py` describes where the arrays lie in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.initial_value import array_of_initial
from runtime_lite.format.manifest import Graph, State, static_shape


@dataclass(eq=False)
class StreamState:
    """The state of `rows` rows of a stream.

    Attributes:
        rows: number of rows; always 1 for a graph without a batch axis.
        lengths: int64 [rows] by axis. For a cache axis, the cached frames of every row, as its kind of state counts
            them; for any other axis of a state, the length that all pushes have. 0 before the first push.
        values: arrays by graph input of role state. Another thread may replace the mapping by one with equal arrays at
            any time, so read it once and keep that reference.
    """

    rows: int
    lengths: Mapping[str, Array]
    values: Mapping[str, Array]


def initial_state(graph: Graph, rows: int) -> StreamState:
    """Return the state of a new stream."""
    sizes = {} if graph.batch_axis is None else {graph.batch_axis: rows}
    values = {
        state.input: np.full(static_shape(state.shape, sizes), array_of_initial(state.initial, state.dtype))
        for state in graph.states
    }
    return StreamState(rows, initial_lengths(graph, rows), values)


def initial_lengths(graph: Graph, rows: int) -> dict[str, Array]:
    """Return the lengths of a new stream of some rows: int64 zeros [rows], by the axes of `longest`."""
    return {axis: np.zeros(rows, np.int64) for axis in longest(graph)}


def longest(graph: Graph) -> dict[str, int]:
    """Return the largest length of a stream by axis, for cache axes and for other axes that states have."""
    held = {name: axis.buckets[-1] for name, axis in graph.axes.items() if axis.is_held}
    return {cache.axis: cache.kind.most(cache.slots) for cache in graph.caches} | held


def check_lengths(where: str, graph: Graph, sizes: Sequence[Mapping[str, int]], states: Sequence[StreamState]) -> None:
    """Refuse a call whose length along an axis of a state differs from that of the stream's earlier calls.

    Args:
        where: names the call in messages.
        graph: the graph to run.
        sizes: true sizes of the feed of each stream.
        states: the state of each stream.

    Raises:
        BadInput: the lengths differ; the message has both.
    """
    for axis in [name for name, record in graph.axes.items() if record.is_held]:
        for fed, state in zip(sizes, states, strict=True):
            before = int(state.lengths[axis][0])
            if before not in (0, fed[axis]):
                raise BadInput(
                    f"{where}: expected length {before} along {axis!r}, which the first push of the stream had, got "
                    f"{fed[axis]}; states lie along it: feed the same length, reset the stream, or open another"
                )


def check_state(where: str, found: object, initial: StreamState, slots: Mapping[str, int]) -> None:
    """Refuse an object that is not a state of a stream, such as a changed snapshot; values are not checked.

    Args:
        where: names the call in messages.
        found: the object that a caller passed.
        initial: state of a new stream of the same graphs and rows.
        slots: the largest length of a stream, by axis.

    Raises:
        BadInput: its rows, names, shapes or dtypes differ from those of `initial`, or a length is out of range.
    """
    if not isinstance(found, StreamState) or type(found.rows) is not int:
        _refuse(where, "the state of a stream", found if type(found) is not StreamState else found.rows)
    if found.rows != initial.rows:
        cure = f"open a stream with rows={show(found.rows)}"
        raise BadInput(f"{where}: expected a state of {initial.rows} rows, got {show(found.rows)}; {cure}")
    for what, arrays, wanted in (("lengths", found.lengths, initial.lengths), ("values", found.values, initial.values)):
        if not isinstance(arrays, Mapping) or arrays.keys() != wanted.keys():
            _refuse(where, f"{what} of {', '.join(wanted) or 'nothing'}", arrays)
        for name, like in wanted.items():
            array = arrays[name]
            if type(array) is not np.ndarray or (array.dtype, array.shape) != (like.dtype, like.shape):
                got = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else array
                _refuse(f"{where}: {name!r}", f"{like.dtype} {list(like.shape)}", got)
    for axis, most in slots.items():
        if not np.all((found.lengths[axis] >= 0) & (found.lengths[axis] <= most)):
            _refuse(f"{where}: {axis!r}", f"lengths from 0 to {most}", found.lengths[axis].tolist())


def oldest_first(graph: Graph, state: StreamState, carried: State) -> Array:
    """Return the array of a state with the oldest frame of each row first, as in recorded answers."""
    array, kind = state.values[carried.input], graph.kind_of(carried)
    if kind.is_given_whole or carried.frames_axis is None:
        return array
    (slots,) = [cache.slots for cache in graph.caches if cache.axis == carried.cache]
    begins = [kind.oldest(slots, length) for length in state.lengths[str(carried.cache)].tolist()]
    rows = [array] if graph.batch_axis is None else np.split(array, len(array))
    return np.concatenate([np.roll(row, -begin, carried.frames_axis) for row, begin in zip(rows, begins, strict=True)])


def join_states(rows: int, by_graph: Mapping[str, StreamState]) -> StreamState:
    """Return the states of several graphs as one state, with the names `graph.name`."""
    return StreamState(
        rows,
        {f"{graph}.{axis}": lengths for graph, state in by_graph.items() for axis, lengths in state.lengths.items()},
        {f"{graph}.{name}": value for graph, state in by_graph.items() for name, value in state.values.items()},
    )


def state_of_graph(joined: StreamState, graph: str, record: Graph) -> StreamState:
    """Return the state of one graph out of a joined state."""
    lengths = {axis: joined.lengths[f"{graph}.{axis}"] for axis in longest(record)}
    return StreamState(joined.rows, lengths, {s.input: joined.values[f"{graph}.{s.input}"] for s in record.states})


def copy_of_state(state: StreamState) -> StreamState:
    """Return a copy of a state that shares no memory with it."""
    lengths = {axis: rows.copy() for axis, rows in state.lengths.items()}
    return StreamState(state.rows, lengths, {name: value.copy() for name, value in state.values.items()})


def _refuse(where: str, expected: str, got: object) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {show(got)}; restore what snapshot() gave")
