"""States that are written in place: a call gives their new frames, which go into the memory that a stream has.

A step then moves its frames, not whole caches. The frames that a call gave are written when the stream goes on, and
only if nobody else holds the rows: a caller that kept a state, a run that was cancelled, another thread. Otherwise the
rows are copied first, so that a state that somebody holds never changes. States that a call gives whole, such as
contexts of convolutions, may lie beside caches.
"""

import functools
import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from runtime_lite.calls.blocks import Block, BlockPool, RowsOfBlock, buffer_of, leave, rows_of, share, whole_block
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.state import StreamState
from runtime_lite.executors.memory import Memory
from runtime_lite.format.arrays import Array
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.manifest import Graph, static_shape, tensor_bytes

_numbers = itertools.count()


class Added(NamedTuple):
    """What a call gave to a stream.

    Attributes:
        outputs: of the run, by name, rows of all its streams one after the other: new frames, the first of each row
            valid, or the whole of a state that is given whole. Buffers of the memory that the states lie in.
        first: the first row of the stream there.
        rows: of the stream.
        lengths: of the stream before the call, int64 [rows], by cache axis.
        counts: frames of the call, by cache axis.
    """

    outputs: Mapping[str, Any]
    first: int
    rows: int
    lengths: Mapping[str, Array]
    counts: Mapping[str, int]


class Writer:
    """Writes what calls of one graph gave where it belongs.

    Args:
        graph: of whose states some are written in place; rows lie in front of those.
        memory: in which states lie, and what calls give.

    Attributes:
        row_bytes: of all states of a row.
    """

    def __init__(self, graph: Graph, memory: Memory) -> None:
        """Note where frames lie: inputs and outputs of states, and what is in front of their frames in a row."""
        self._memory = memory
        self._has_rows = graph.batch_axis is not None
        self._caches: list[tuple[CacheAxis, list[tuple[str, str, tuple[slice, ...]]]]] = []
        for cache in graph.caches:
            along = [each for each in graph.states if each.cache == cache.axis and not cache.kind.is_given_whole]
            axes = [(each.input, each.output, each.frames_axis or 0) for each in along]
            places = [(name, output, (slice(None),) * (axis - self._has_rows)) for name, output, axis in axes]
            self._caches.append((cache, places))
        rows_at = {tensor.name: graph.rows_at(tensor) for tensor in graph.inputs}
        sizes = {} if graph.batch_axis is None else {graph.batch_axis: 1}
        shapes = [(static_shape(each.shape, sizes), each.dtype) for each in graph.states]
        self.row_bytes = sum(itertools.starmap(tensor_bytes, shapes))
        whole = [each for each in graph.states if graph.kind_of(each).is_given_whole]
        self._whole = [(each.input, each.output, rows_at[each.input]) for each in whole]
        self._given = {name: (output, rows_at) for name, output, rows_at in self._whole}
        in_front = 0 if self._has_rows else None
        self._given |= {name: (output, in_front) for _, places in self._caches for name, output, _ in places}

    def apart(self, added: Added) -> Added:
        """The same without what the run gave to other streams, and behind the frames of this one."""
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
        """The same of one state alone, by its graph input, as arrays of the host."""
        output, rows_at = self._given[name]
        rows = rows_of(added.outputs[output], rows_at, added.first, added.rows)
        return added._replace(outputs={output: self._memory.read(rows)}, first=0)

    def write(self, places: Mapping[str, Any], start: int, added: Added) -> None:
        """Write what a call gave.

        Args:
            places: states that are written, by graph input, in the memory of what is added; others stay.
            start: the first row of the stream there.
            added: what it gets.
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
                given = rows_of(added.outputs[output], rows_at, added.first, added.rows)
                rows_of(places[name], rows_at, start, added.rows)[...] = given


class HeldRows(RowsOfBlock):
    """State arrays by graph input: what lies in rows of a block, and what the last call gave, which is not written yet.

    An array that is asked for is a copy: later states may come to lie in these rows.

    Attributes:
        writer: writes what a call gave.
        holders: those who hold what lies in these rows, by number: this, and states before and beside it. Whoever lets
            go is taken out at once, so that one entry means that nobody else holds them.
        added: what the last call gave; None where it lies in the rows.
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
        """Hold the rows."""
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
        """Write what the last call gave if nobody else holds what lies there; whether all lies in the rows now.

        Several threads may do so at once: they write the same.
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
        """The same in a block that holds no others."""
        added = self.added
        own = self.block.own_rows(self.start, self.rows)
        return HeldRows(self.writer, own.block, own.start, own.rows, {}, added)

    def views(self) -> RowsOfBlock:
        """What lies in the rows, for a run that holds this."""
        return RowsOfBlock(self.block, self.start, self.rows)

    def after(self, added: Added) -> "HeldRows":
        """What a stream carries after a call that began with this."""
        return HeldRows(self.writer, self.block, self.start, self.rows, self.holders, added)


def is_in_place(graph: Graph) -> bool:
    """Whether a state of a graph is one of which calls give new frames alone."""
    return any(not cache.kind.is_given_whole for cache in graph.caches)


def homes(writer: Writer, pool: BlockPool, states: Sequence[StreamState], rows: int) -> list[HeldRows]:
    """Return where some streams lie that are to run together, all that they carry written.

    They stay where they are, but where others hold what lies there. Several that fill a bucket and lie apart are copied
    into one block, where they stay together.

    Args:
        writer: of the graph that is to run.
        pool: its blocks.
        states: what each stream carries; not changed.
        rows: of the bucket that was built for the run.
    """
    carried = [each.values for each in states]  # each read once: others may let a state lie elsewhere meanwhile
    kept = [values if isinstance(values, HeldRows) and values.rest() else None for values in carried]
    held = [each for each in kept if each is not None]
    fills = sum(state.rows for state in states) == rows
    if len(held) == len(states) and (len(states) == 1 or not fills or whole_block(held, rows) is not None):
        return held
    together = pool.take(rows) if fills and len(states) > 1 else None
    found, start = [], 0
    for state, own in zip(states, kept, strict=True):
        if together is not None:
            found.append(_copied(writer, state, together, start))
        else:
            found.append(_copied(writer, state, pool.take(state.rows), 0) if own is None else own)
        start += state.rows
    return found


def _copied(writer: Writer, state: StreamState, block: Block, start: int) -> HeldRows:
    """A state in rows of a block."""
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
    """Return what streams carry after a run.

    Args:
        graph: what ran.
        states: what the streams carried; there is room for the frames.
        held: where that lies.
        feeds: what they were fed.
        outputs: of role state, rows of all streams one after the other, in the memory of the states; nobody writes
            there any more. They are held until their streams go on, or copied where that would be more than these have
            in states.
    """
    found, first, size = [], 0, sum(array.nbytes for array in outputs.values())
    for state, own, feed in zip(states, held, feeds, strict=True):
        counts = {cache.axis: cache.frames_of(feed.sizes) for cache in graph.caches}
        added = Added(outputs, first, state.rows, state.lengths, counts)
        found.append(own.after(added if size <= state.rows * own.writer.row_bytes else own.writer.apart(added)))
        first += state.rows
    return found


def hand_over(states: Sequence[StreamState], after: Sequence[StreamState]) -> None:
    """Let those who share a block know of states that came in the place of others, or that lie elsewhere now."""
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
