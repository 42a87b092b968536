"""Where the states of streams lie from call to call: in blocks of rows, which runs write and streams share.

The states of streams that fill a bucket together stay where the run wrote them, so that no byte of theirs moves while
these streams go on together, in the same order. When one of them leaves, the others get rows of their own: a stream
holds no more memory than its states need. What an array lies in is not written while anything holds it: the memory of
a block comes back with the last array in it, whoever held that, and after a run that failed, too.
"""

import itertools
import mmap
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from runtime_lite.calls.state import StreamState
from runtime_lite.format.arrays import Array
from runtime_lite.format.initial_value import array_of_initial
from runtime_lite.format.manifest import Graph, static_shape, tensor_bytes

ALIGNMENT = 64
"""Where arrays begin: a cache line, which vector instructions want too."""


OWN_MAPPING = 2**16
"""Memory of so many bytes is asked of the system and goes back there: what is let go of leaves no holes behind."""


class _Memory:
    """What the arrays of a block lie in; when the last of them is gone, its bytes go where its end says."""

    __slots__ = ("__array_interface__", "__weakref__", "_end")

    def __init__(self, content: "_Bytes", spare: "deque[_End]") -> None:
        self.__array_interface__ = content.interface
        self._end = _End(self, content, spare)


class _End(weakref.ref[_Memory]):
    """The bytes of a memory, which are appended to what is spare when nothing lies in them any more.

    No line of Python runs for that: Python drops what is raised in finalizers, and Ctrl-C would be lost there.
    """

    __slots__ = ("content",)

    def __new__(cls, memory: _Memory, content: "_Bytes", spare: "deque[_End]") -> "_End":
        return super().__new__(cls, memory, spare.append)

    def __init__(self, memory: _Memory, content: "_Bytes", spare: "deque[_End]") -> None:
        self.content = content


class Block:
    """State arrays of some rows, which lie in memory that nobody else writes while one of them is held.

    Attributes:
        arrays: by graph input of role state.
        rows: number of rows.
        room: rows that its memory has, as many or more.
        sharers: the states that lie in it, if they are those of several streams.
        taken: slots of every row that a frame was written to, int64 [rows], by cache axis; where frames are appended.
    """

    __slots__ = ("_pool", "arrays", "room", "rows", "sharers", "taken")

    def __init__(self, pool: "BlockPool", rows: int, room: int, arrays: dict[str, Array]) -> None:
        """Hold the arrays."""
        self._pool = pool
        self.rows, self.room = rows, room
        self.arrays = arrays
        self.sharers: list[weakref.ref[StreamState]] = []
        self.taken = pool.none_taken(rows)

    def rows_of(self, name: str, start: int, rows: int) -> Array:
        """A view of some rows of one state."""
        return rows_of(self.arrays[name], self._pool.rows_at[name], start, rows)

    def own_rows(self, start: int, rows: int) -> "RowsOfBlock":
        """Some rows, copied into a block that holds no others."""
        own = self._pool.take(rows)
        for name, array in own.arrays.items():
            np.copyto(array, self.rows_of(name, start, rows))
        for axis, taken in self.taken.items():  # behind the arrays: what was written meanwhile is taken
            own.taken[axis][:] = taken[start : start + rows]
        return RowsOfBlock(own, 0, rows)

    def put_in_place(self, old: StreamState, new: StreamState) -> None:
        """Let a state share the block where another did."""
        for number, sharer in enumerate(self.sharers):
            if sharer() is old:
                self.sharers[number] = weakref.ref(new)


class RowsOfBlock(Mapping[str, Array]):
    """State arrays by graph input, which are rows of a block; a view is made when it is asked for.

    While streams go on together nobody asks: a run reads their block as a whole.

    Attributes:
        block: where they lie.
        start: the first row.
        rows: number of rows.
    """

    __slots__ = ("block", "rows", "start")

    def __init__(self, block: Block, start: int, rows: int) -> None:
        """Hold the block."""
        self.block = block
        self.start = start
        self.rows = rows

    def __getitem__(self, name: str) -> Array:
        """Return the rows of one state."""
        return self.block.rows_of(name, self.start, self.rows)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the states."""
        return iter(self.block.arrays)

    def __len__(self) -> int:
        """Return how many states there are."""
        return len(self.block.arrays)


class BlockPool:
    """The blocks of one graph. Any thread may use it; nothing here waits, for memory may come back at any moment.

    Args:
        graph: whose states they hold.

    Attributes:
        rows_at: where every state has its rows, by graph input.
    """

    def __init__(self, graph: Graph) -> None:
        """Start empty."""
        self._graph = graph
        self._layouts: dict[int, _Layout] = {}
        self._spare: dict[int, deque[_End]] = {}
        self.rows_at = {tensor.name: graph.rows_at(tensor) for tensor in graph.inputs if tensor.role == "state"}
        self._initial = {state.input: array_of_initial(state.initial, state.dtype) for state in graph.states}
        self._runs = 1

    def take(self, rows: int, room: int | None = None) -> Block:
        """Return a block that nothing lies in; it holds whatever was there.

        Args:
            rows: of the block.
            room: rows that its memory has, as many or more; None for as many.
        """
        room = room or rows
        spare = self._spare.get(room)
        if spare is None:
            spare = self._spare.setdefault(room, deque(maxlen=self._runs * self._graph.row_buckets[-1] // room))
        try:
            content = spare.pop().content
        except IndexError:
            content = self._layout(room).new_bytes()
        lies_in = np.asarray(_Memory(content, spare))
        places = self._layout(rows).places
        arrays = {name: np.ndarray(shape, dtype, lies_in, start) for name, shape, dtype, start in places}
        return Block(self, rows, room, arrays)

    def _layout(self, rows: int) -> "_Layout":
        layout = self._layouts.get(rows)
        if layout is None:
            layout = self._layouts[rows] = _layout(self._graph, rows)
        return layout

    def none_taken(self, rows: int) -> dict[str, Array]:
        """Of each cache axis to which frames are appended, 0 for every row."""
        return {each.axis: np.zeros(rows, np.int64) for each in self._graph.caches if each.update == "append"}

    def initial(self, rows: int) -> "RowsOfBlock":
        """Return the initial values of some rows, in a block of their own."""
        block = self.take(rows)
        for state in self._graph.states:
            block.arrays[state.input][...] = self._initial[state.input]
        return RowsOfBlock(block, 0, rows)

    def keep_for(self, runs: int) -> None:
        """Keep as many rows of each size as so many runs at once can have, if that is more than before.

        What is kept so far is let go of; so is, with the last of it, what is held now.
        """
        if runs > self._runs:
            self._runs = runs
            self._spare = {}

    def trim(self) -> None:
        """Give back what is kept; what comes later is kept again."""
        for spare in list(self._spare.values()):
            spare.clear()

    def close(self) -> None:
        """Keep nothing any more."""
        self._runs = 0
        self._spare = {}


class _Bytes(NamedTuple):
    """Memory, and how NumPy wants to be told of it."""

    array: Array
    interface: dict[str, Any]


class _Layout(NamedTuple):
    """Where the states of some rows lie in a block: name, shape, dtype and first byte of each; and the end of all."""

    places: tuple[tuple[str, tuple[int, ...], "np.dtype[Any]", int], ...]
    end: int

    def new_bytes(self) -> _Bytes:
        """Memory for them, aligned."""
        if self.end >= OWN_MAPPING:
            mapped: Array = np.frombuffer(mmap.mmap(-1, self.end), np.uint8)
            return _Bytes(mapped, mapped.__array_interface__)
        content = np.empty(self.end + ALIGNMENT, np.uint8)
        start = -content.ctypes.data % ALIGNMENT
        aligned = content[start : start + self.end]
        return _Bytes(aligned, aligned.__array_interface__)


def _layout(graph: Graph, rows: int) -> _Layout:
    sizes = {} if graph.batch_axis is None else {graph.batch_axis: rows}
    places, start = [], 0
    for state in graph.states:
        shape = static_shape(state.shape, sizes)
        places.append((state.input, shape, np.dtype(state.dtype), start))
        start += -(-tensor_bytes(shape, state.dtype) // ALIGNMENT) * ALIGNMENT
    return _Layout(tuple(places), max(start, 1))


def settle(block: Block, rows: Sequence[int]) -> list[RowsOfBlock]:
    """Return what streams carry on, of a block that a run has written.

    Rows that fill it stay there; others are copied, for the block is more than they need.

    Args:
        block: what the run wrote.
        rows: of every stream, one after the other.
    """
    places = zip(itertools.accumulate(rows, initial=0), rows, strict=False)
    if sum(rows) < block.room:
        return [block.own_rows(start, count) for start, count in places]
    return [RowsOfBlock(block, start, count) for start, count in places]


def share(states: Sequence[StreamState]) -> None:
    """Remember who shares the block in which the states of several streams have stayed."""
    first = states[0].values
    if len(states) > 1 and isinstance(first, RowsOfBlock) and first.block.rows > states[0].rows:
        first.block.sharers = [weakref.ref(state) for state in states]


def leave(states: Sequence[StreamState]) -> None:
    """Let go of states that are spent: those that shared a block with them, and are not, get rows of their own.

    A run that reads the block meanwhile does not notice: the rows are copied, and it holds the block.
    """
    for state in states:
        values = state.values
        if isinstance(values, RowsOfBlock) and values.block.sharers:
            block = values.block
            sharers, block.sharers = block.sharers, []
            for left in {sharer() for sharer in sharers}.difference(states):
                if left is not None and isinstance(place := left.values, RowsOfBlock) and place.block is block:
                    left.values = block.own_rows(place.start, left.rows)


def whole_block(carried: Sequence[Mapping[str, Array]], rows: int) -> Block | None:
    """Return the block of so many rows that is filled by what some streams carry, in order; None without one."""
    block, start = None, 0
    for values in carried:
        if not isinstance(values, RowsOfBlock) or values.block.rows != rows or values.start != start:
            return None
        if start and values.block is not block:
            return None
        block = values.block
        start += values.rows
    return block if start == rows else None


def rows_of(array: Array, axis: int | None, start: int, rows: int) -> Array:
    """Return some rows along an axis, as a view; all of an array that has none."""
    if axis is None or array.shape[axis] == rows:
        return array
    return array[(slice(None),) * axis + (slice(start, start + rows),)]
