"""Writes the new frames of a call into the memory of the stream's states, instead of copying whole caches.

A step writes its new frames and does not copy whole caches. The frames of a call are written when the stream runs
again, and only if nothing else refers to the rows, such as a state kept by a caller, a cancelled run or another thread.
Otherwise the rows are copied first, so that a state that is still referenced never changes. A graph may also have
states that a call returns whole, such as contexts of convolutions.
"""

import functools
import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from runtime_lite.calls.blocks import (
    LEAST_USED,
    Block,
    BlockPool,
    RowsOfBlock,
    buffer_of,
    leading_block,
    leave,
    rows_of,
    share,
)
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.state import StreamState
from runtime_lite.executors.memory import Memory
from runtime_lite.format.arrays import Array
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.manifest import Graph, static_shape, tensor_bytes

_numbers = itertools.count()


class Added(NamedTuple):
    """The state outputs of a call for one stream.

    Attributes:
        outputs: state outputs of the run by name, with the rows of all its streams: new frames, of which the first
            `counts` are valid in each row, or the whole next state for kinds that a call returns whole. Buffers of the
            memory that the states lie in.
        first: the first row of the stream in the outputs.
        rows: number of rows of the stream.
        lengths: lengths of the stream before the call, int64 [rows], by cache axis.
        counts: number of valid new frames, by cache axis.
    """

    outputs: Mapping[str, Any]
    first: int
    rows: int
    lengths: Mapping[str, Array]
    counts: Mapping[str, int]


class Writer:
    """Writes the state outputs of calls of one graph into states.

    Args:
        graph: a graph with states that are written in place; their first axis is the batch axis, if it has one.
        memory: the memory of the states and of the calls' state outputs.

    Attributes:
        row_bytes: bytes of all states of one row.
    """

    def __init__(self, graph: Graph, memory: Memory) -> None:
        """Compute, for each cache, the names of its inputs and outputs and the axes in front of its frames."""
        self._memory = memory
        self._has_rows = graph.batch_axis is not None
        self._caches: list[tuple[CacheAxis, list[tuple[str, str, tuple[slice, ...]]]]] = []
        for cache in graph.caches:
            along = [state for state in graph.states if state.cache == cache.axis and not cache.kind.is_given_whole]
            axes = [(state.input, state.output, state.frames_axis or 0) for state in along]
            places = [(name, output, (slice(None),) * (axis - self._has_rows)) for name, output, axis in axes]
            self._caches.append((cache, places))
        rows_at = {tensor.name: graph.rows_at(tensor) for tensor in graph.inputs}
        sizes = {} if graph.batch_axis is None else {graph.batch_axis: 1}
        shapes = [(static_shape(state.shape, sizes), state.dtype) for state in graph.states]
        self.row_bytes = sum(itertools.starmap(tensor_bytes, shapes))
        whole = [state for state in graph.states if graph.kind_of(state).is_given_whole]
        self._whole = [(state.input, state.output, rows_at[state.input]) for state in whole]
        self._given = {name: (output, rows_at) for name, output, rows_at in self._whole}
        in_front = 0 if self._has_rows else None
        self._given |= {name: (output, in_front) for _, places in self._caches for name, output, _ in places}

    def apart(self, added: Added) -> Added:
        """Return a copy that holds only the rows and the valid frames of its own stream."""
        outputs = {}
        for cache, states in self._caches:
            for _, output, front in states:
                rows = rows_of(added.outputs[output], 0 if self._has_rows else None, added.first, added.rows)
                front = (slice(None), *front) if self._has_rows else front
                outputs[output] = self._memory.copy_of(rows[(*front, slice(added.counts[cache.axis]))])
        for _, output, rows_at in self._whole:
            outputs[output] = self._memory.copy_of(rows_of(added.outputs[output], rows_at, added.first, added.rows))
        return added._replace(outputs=outputs, first=0)

    def on_host(self, added: Added, name: str) -> Added:
        """Return the part of one state alone, by its graph input, as arrays of the host."""
        output, rows_at = self._given[name]
        rows = rows_of(added.outputs[output], rows_at, added.first, added.rows)
        return added._replace(outputs={output: self._memory.read(rows)}, first=0)

    def write(self, places: Mapping[str, Any], start: int, added: Added) -> None:
        """Write the state outputs of a call into states.

        Args:
            places: arrays to write, by graph input, in the same memory as `added`; other states are not written.
            start: the first row of the stream in these arrays.
            added: the state outputs of the call.
        """
        for cache, states in self._caches:
            count, moves = added.counts[cache.axis], cache.kind.moves
            for row, length in enumerate(added.lengths[cache.axis].tolist()):
                to, of = ((start + row,), (added.first + row,)) if self._has_rows else ((), ())
                for slots, frames in moves(cache.slots, length, count):
                    for name, output, front in states:
                        if name in places:
                            places[name][(*to, *front, slots)] = added.outputs[output][(*of, *front, frames)]
        for name, output, rows_at in self._whole:
            if name in places:
                new_state = rows_of(added.outputs[output], rows_at, added.first, added.rows)
                rows_of(places[name], rows_at, start, added.rows)[...] = new_state

    def fill(self, block: Block, used: int) -> None:
        """Fill the rows of a block behind the first `used` ones, which are those of streams; see `homes`."""
        pool = block.pool
        for name in block.arrays:
            if pool.rows_at[name] is not None:
                is_whole = any(name == whole for whole, _, _ in self._whole)
                source = block.rows_of(name, 0, 1) if is_whole else buffer_of(pool.initial(1), name)
                for row in range(used, block.rows):
                    pool.memory.copy(block.rows_of(name, row, 1), source)


class HeldRows(RowsOfBlock):
    """State arrays by graph input: rows of a block, and outputs of the last call that are not written there yet.

    Reading an array returns a copy, because later states may be written into these rows.

    Attributes:
        writer: writes the outputs of a call into the rows.
        holders: weak references to all states that lie in these rows, by number: this one, and others before and beside
            it. A deleted state is removed at once, so that one entry means that no other state needs the rows.
        added: outputs of the last call; None once they are written into the rows.
    """

    __slots__ = ("__weakref__", "added", "holders", "writer")

    def __init__(
        self,
        writer: Writer,
        block: Block,
        start: int,
        rows: int,
        holders: dict[int, "weakref.ref[HeldRows]"],
        added: Added | None = None,
    ) -> None:
        """Store the rows and register as one of their holders."""
        super().__init__(block, start, rows)
        self.writer, self.added, self.holders = writer, added, holders
        number = next(_numbers)
        holders[number] = weakref.ref(self, functools.partial(holders.pop, number))

    def __getitem__(self, name: str) -> Array:
        """Return a copy of the rows of one state."""
        added = self.added  # before the rows are read, where another thread may be writing it
        array = super().__getitem__(name).copy()
        if added is not None:
            self.writer.write({name: array}, 0, self.writer.on_host(added, name))
        return array

    def rest(self) -> bool:
        """Write the outputs of the last call unless another state needs the rows; return whether all is written now.

        Several threads may do this at once, as all write the same values.
        """
        added = self.added
        if added is None:
            return True
        if len(self.holders) > 1:
            return False
        self.writer.write(self.block.arrays, self.start, added)
        self.added = None
        return True

    def own(self) -> "HeldRows":
        """Return a copy in a new block."""
        added = self.added
        own = self.block.own_rows(self.start, self.rows)
        return HeldRows(self.writer, own.block, own.start, own.rows, {}, added)

    def views(self) -> RowsOfBlock:
        """Return views of the rows, for a run that keeps a reference to this state."""
        return RowsOfBlock(self.block, self.start, self.rows)

    def after(self, added: Added) -> "HeldRows":
        """Return the state of a stream after a call that started from this state and had the outputs `added`."""
        return HeldRows(self.writer, self.block, self.start, self.rows, self.holders, added)


def is_in_place(graph: Graph) -> bool:
    """Return whether calls of a graph return only the new frames of one of its states."""
    return any(not cache.kind.is_given_whole for cache in graph.caches)


def homes(writer: Writer, pool: BlockPool, states: Sequence[StreamState], rows: int) -> list[HeldRows]:
    """Return the states of streams that are to run together as rows of a block, with all outputs of calls written.

    Rows that other states still need are copied. Rows of several streams that do not lie together are copied into the
    first rows of one block, where they stay: nothing is copied while the same streams run together. Free rows behind
    them are those of a new stream, except for states that calls return whole, which are the first row's: a graph may
    compute something in the first call of a stream, and is not to do it for free rows in every call. Streams that use
    too little of a block stay where they are.

    Args:
        writer: the writer of the graph to run.
        pool: the blocks of the graph.
        states: the state of each stream; not changed.
        rows: number of rows of the bucket of the run.
    """
    carried = [state.values for state in states]  # each read once: others may let a state lie elsewhere meanwhile
    at_rest = [values if isinstance(values, HeldRows) and values.rest() else None for values in carried]
    held = [rows_at_rest for rows_at_rest in at_rest if rows_at_rest is not None]
    used = sum(state.rows for state in states)
    if len(held) == len(states):
        block = leading_block(held, rows)
        if block is not None and block.unused is not None:
            writer.fill(block, block.unused)
            block.unused = None
        if block is not None or used == rows == states[0].rows:
            return held
    if used * LEAST_USED < rows:
        return [
            _copied(writer, state, pool.take(state.rows), 0) if rows_at_rest is None else rows_at_rest
            for state, rows_at_rest in zip(states, at_rest, strict=True)
        ]
    together = pool.take(rows)
    placed, start = [], 0
    for state in states:
        placed.append(_copied(writer, state, together, start))
        start += state.rows
    if start < rows:
        writer.fill(together, start)
        together.unused = start
    return placed


def _copied(writer: Writer, state: StreamState, block: Block, start: int) -> HeldRows:
    """Copy a state into rows of a block and return it."""
    values = state.values
    added = values.added if isinstance(values, HeldRows) else None
    source = values.views() if isinstance(values, HeldRows) else values
    for name in block.arrays:
        block.pool.memory.copy(block.rows_of(name, start, state.rows), buffer_of(source, name))
    if added is not None:
        writer.write(block.arrays, start, added)
    return HeldRows(writer, block, start, state.rows, {})


def after_run(
    graph: Graph,
    states: Sequence[StreamState],
    held: Sequence[HeldRows],
    feeds: Sequence[Feed],
    outputs: Mapping[str, Any],
) -> list[HeldRows]:
    """Return the states of streams after a run.

    Args:
        graph: the graph that ran.
        states: the states of the streams before the run, with free slots for the new frames.
        held: the rows that these states lie in.
        feeds: the feed of each stream.
        outputs: outputs of role state, with the rows of all streams, in the memory of the states; nothing writes them
            any more. They are kept until the streams run again, or copied per stream if they take more memory than its
            states.
    """
    next_rows, first, size = [], 0, sum(array.nbytes for array in outputs.values())
    for state, state_rows, feed in zip(states, held, feeds, strict=True):
        counts = {cache.axis: cache.frames_of(feed.sizes) for cache in graph.caches}
        added = Added(outputs, first, state.rows, state.lengths, counts)
        is_small = size <= state.rows * state_rows.writer.row_bytes
        next_rows.append(state_rows.after(added if is_small else state_rows.writer.apart(added)))
        first += state.rows
    return next_rows


def hand_over(states: Sequence[StreamState], after: Sequence[StreamState]) -> None:
    """Update the sharers of blocks after a run: new states replace old ones, or lie in other blocks."""
    moved = []
    for old, new in zip(states, after, strict=True):
        block = _block(new)
        if block is None or _block(old) is not block:
            moved.append(old)
        else:
            block.put_in_place(old, new)
    leave(moved)
    if len(moved) == len(states):  # else those who stay share their blocks with others, too
        share(after)


def _block(state: StreamState) -> Block | None:
    return state.values.block if isinstance(state.values, RowsOfBlock) else None
