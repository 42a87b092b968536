"""The state of one stream: what a graph carries from push to push, and how long it is along its axes.

Lengths are counted per cache and per row: rows of one call may be streams of different ages. A push makes a new state
and changes nothing in the one that it was given; `blocks.py` says where the arrays lie.
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
    """What is carried, for `rows` rows.

    Attributes:
        rows: number of rows; 1 and without meaning for a graph without a batch axis.
        lengths: cached frames of every row, as the kind of its states counts them, int64 [rows], by cache axis; and by
            axis along which states lie, the length that all pushes have. 0 before the first push.
        values: arrays by graph input of role state; the same numbers may come to lie elsewhere at any moment, so it is
            read once and held.
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
    """Return the lengths of new streams, by what `longest` names."""
    return {axis: np.zeros(rows, np.int64) for axis in longest(graph)}


def longest(graph: Graph) -> dict[str, int]:
    """Return what a stream has a length along, each with the most: cache axes, and axes along which states lie."""
    held = {name: axis.buckets[-1] for name, axis in graph.axes.items() if axis.is_held}
    return {cache.axis: cache.kind.most(cache.slots) for cache in graph.caches} | held


def check_lengths(where: str, graph: Graph, sizes: Sequence[Mapping[str, int]], states: Sequence[StreamState]) -> None:
    """Refuse a call of another length than the calls of its stream before it, along an axis along which states lie.

    Args:
        where: names the call in messages.
        graph: what is to run.
        sizes: true sizes of what each stream is fed.
        states: what each stream carries.

    Raises:
        BadInput: with both lengths.
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
    """Refuse what is not the state of a stream: it may have been stored and read back. Values are not looked at.

    Args:
        where: names the call in messages.
        found: what a caller gives.
        initial: state of a new stream of the same graphs and rows.
        slots: the most, by what a stream has lengths along.

    Raises:
        BadInput: its rows, names, shapes or dtypes are others, or a length is none.
    """
    if not isinstance(found, StreamState) or type(found.rows) is not int:
        _refuse(where, "the state of a stream", found if type(found) is not StreamState else found.rows)
    if found.rows != initial.rows:
        cure = f"open a stream with rows={show(found.rows)}"
        raise BadInput(f"{where}: expected a state of {initial.rows} rows, got {show(found.rows)}; {cure}")
    for what, given, wanted in (("lengths", found.lengths, initial.lengths), ("values", found.values, initial.values)):
        if not isinstance(given, Mapping) or given.keys() != wanted.keys():
            _refuse(where, f"{what} of {', '.join(wanted) or 'nothing'}", given)
        for name, like in wanted.items():
            array = given[name]
            if type(array) is not np.ndarray or (array.dtype, array.shape) != (like.dtype, like.shape):
                got = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else array
                _refuse(f"{where}: {name!r}", f"{like.dtype} {list(like.shape)}", got)
    for axis, most in slots.items():
        if not np.all((found.lengths[axis] >= 0) & (found.lengths[axis] <= most)):
            _refuse(f"{where}: {axis!r}", f"lengths from 0 to {most}", found.lengths[axis].tolist())


def oldest_first(graph: Graph, state: StreamState, carried: State) -> Array:
    """Return an array of a state with the oldest frame of each row in front, as recorded answers have it."""
    array, kind = state.values[carried.input], graph.kind_of(carried)
    if kind.is_given_whole or carried.frames_axis is None:
        return array
    (slots,) = [cache.slots for cache in graph.caches if cache.axis == carried.cache]
    begins = [kind.oldest(slots, length) for length in state.lengths[str(carried.cache)].tolist()]
    rows = [array] if graph.batch_axis is None else np.split(array, len(array))
    return np.concatenate([np.roll(row, -begin, carried.frames_axis) for row, begin in zip(rows, begins, strict=True)])


def join_states(rows: int, by_graph: Mapping[str, StreamState]) -> StreamState:
    """Return the states of several graphs as one, whose names have the graph before them: `graph.name`."""
    return StreamState(
        rows,
        {f"{graph}.{axis}": lengths for graph, state in by_graph.items() for axis, lengths in state.lengths.items()},
        {f"{graph}.{name}": value for graph, state in by_graph.items() for name, value in state.values.items()},
    )


def state_of_graph(joined: StreamState, graph: str, record: Graph) -> StreamState:
    """Return what joined states hold for one graph."""
    lengths = {axis: joined.lengths[f"{graph}.{axis}"] for axis in longest(record)}
    return StreamState(joined.rows, lengths, {s.input: joined.values[f"{graph}.{s.input}"] for s in record.states})


def copy_of_state(state: StreamState) -> StreamState:
    """Return a state that shares no memory with another one."""
    lengths = {axis: rows.copy() for axis, rows in state.lengths.items()}
    return StreamState(state.rows, lengths, {name: value.copy() for name, value in state.values.items()})


def _refuse(where: str, expected: str, got: object) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {show(got)}; restore what snapshot() gave")
