"""Manages the memory of streams' states, in blocks of rows that runs write and streams share.

The states of streams that ran together stay in the block that the run wrote, so that nothing is copied while these
streams run together again, in the same order. When less than a quarter of a block (`LEAST_USED`) is still in use, the
remaining rows are copied out of it; so streams hold at most four times the memory that their states need, and few rows
are copied twice. A block is not written while an array in it is referenced. Its memory becomes free with the last of
these arrays, after a failed run, too.
"""

import contextlib
import itertools
import mmap
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from runtime_lite.calls.state import StreamState
from runtime_lite.executors.memory import Holder, Layout, Memory, Place
from runtime_lite.format.arrays import Array
from runtime_lite.format.initial_value import array_of_initial
from runtime_lite.format.manifest import Graph, static_shape, tensor_bytes

LEAST_USED = 4
"""States are copied out of a block when they use less than one part in this many of its memory."""

ALIGNMENT = 64
"""Alignment of arrays in bytes: a cache line, which also suits vector instructions."""

OWN_MAPPING = 2**16
"""Memory of at least this many bytes is mapped separately, so that the system gets it back as soon as it is freed."""


class HostBytes:
    """Memory of this process, with the array interface by which NumPy makes arrays in it."""

    __slots__ = ("__weakref__", "array", "interface")

    def __init__(self, array: Array) -> None:
        """Keep a reference to the array."""
        self.array, self.interface = array, array.__array_interface__


class HostMemory:
    """Memory of this process; its buffers are NumPy arrays."""

    crossed = None

    def reserve(self, size: int) -> HostBytes:
        if size >= OWN_MAPPING:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared with no fork
            mapped: Array = np.frombuffer(memory, np.uint8)
            return HostBytes(mapped)
        content = np.empty(size + ALIGNMENT, np.uint8)
        start = -content.ctypes.data % ALIGNMENT
        return HostBytes(content[start : start + size])

    def release(self, content: HostBytes) -> None:
        """Do nothing: memory is freed with the last reference to it."""

    def arrays(self, holder: Holder, places: Sequence[Place]) -> dict[str, Array]:
        lies_in = np.asarray(holder)
        return {name: np.ndarray(shape, dtype, lies_in, start) for name, shape, dtype, start in places}

    def empty(self, layout: Layout) -> dict[str, Array]:
        return {name: np.empty(shape, dtype) for name, shape, dtype, _ in layout.places}

    def copy(self, target: Array, source: Array) -> None:
        np.copyto(target, source)

    def copy_of(self, buffer: Array) -> Array:
        return buffer.copy()

    def join(self, target: Array, parts: Sequence[Array], axis: int) -> None:
        np.concatenate(parts, axis, out=target)

    def is_read(self, buffer: Array) -> bool:
        return True

    def read(self, buffer: Array) -> Array:
        return buffer

    def trim(self) -> None:
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Do nothing: arrays keep their memory alive."""


HOST = HostMemory()
"""The memory of this process."""


class _Held:
    """The memory behind the arrays of a block; when the last of them is deleted, `_End` makes it free for reuse."""

    __slots__ = ("__array_interface__", "__weakref__", "_end", "content")

    def __init__(self, content: Any, spare: "deque[_End]") -> None:
        self.content, self.__array_interface__ = content, content.interface
        self._end = _End(self, content, spare)


class _End(weakref.ref[_Held]):
    """A weak reference that appends itself, with its memory, to the free memory once no array uses the memory.

    The callback is `deque.append`, which runs no Python code: Python discards exceptions in finalizers, and a Ctrl-C
    that came there would be lost.
    """

    __slots__ = ("content",)

    def __new__(cls, held: _Held, content: Any, spare: "deque[_End]") -> "_End":
        return super().__new__(cls, held, spare.append)

    def __init__(self, held: _Held, content: Any, spare: "deque[_End]") -> None:
        self.content = content


class Block:
    """State arrays of some rows, in memory that nobody else writes while one of the arrays is referenced.

    Attributes:
        pool: the pool that it was taken from.
        arrays: by graph input of role state.
        rows: number of rows.
        room: number of rows that its memory has, at least `rows`.
        sharers: the states in it, if there are several.
        unused: the first row that is to be filled again before the next run, as the streams in front of it were new
            when it was filled; None for none.
    """

    __slots__ = ("arrays", "pool", "room", "rows", "sharers", "unused")

    def __init__(self, pool: "BlockPool", rows: int, room: int, arrays: dict[str, Any]) -> None:
        """Store the arrays."""
        self.pool = pool
        self.rows, self.room = rows, room
        self.arrays = arrays
        self.sharers: list[weakref.ref[StreamState]] = []
        self.unused: int | None = None

    def rows_of(self, name: str, start: int, rows: int) -> Any:
        """Return a view of some rows of one state, as a buffer of the pool's memory."""
        return rows_of(self.arrays[name], self.pool.rows_at[name], start, rows)

    def own_rows(self, start: int, rows: int) -> "RowsOfBlock":
        """Copy some rows into a new block and return them."""
        own = self.pool.take(rows)
        for name, array in own.arrays.items():
            self.pool.memory.copy(array, self.rows_of(name, start, rows))
        return RowsOfBlock(own, 0, rows)

    def is_too_large(self, rows: int) -> bool:
        """Return whether a block is too large for some rows, so that these are to be copied out of it."""
        return rows * LEAST_USED < self.room

    def let_go(self, spent: Sequence[StreamState]) -> None:
        """Copy the rows of the sharers that are not in `spent` out of the block if it is too large for them."""
        left = [state for sharer in self.sharers if (state := sharer()) is not None and state not in spent]
        places = {state: values for state in left if isinstance(values := state.values, RowsOfBlock)}
        places = {state: values for state, values in places.items() if values.block is self}
        is_left = self.is_too_large(sum(state.rows for state in places))
        self.sharers = [] if is_left else [weakref.ref(state) for state in places]
        if is_left:
            for state, values in places.items():
                state.values = values.own()

    def put_in_place(self, old: StreamState, new: StreamState) -> None:
        """Replace one state by another in the list of sharers."""
        for number, sharer in enumerate(self.sharers):
            if sharer() is old:
                self.sharers[number] = weakref.ref(new)


class RowsOfBlock(Mapping[str, Array]):
    """State arrays by graph input that are rows of a block; a view is made when an array is read.

    While streams run together no view is made, because the run reads the whole block.

    Attributes:
        block: the block that they lie in.
        start: the first row.
        rows: number of rows.
    """

    __slots__ = ("block", "rows", "start")

    def __init__(self, block: Block, start: int, rows: int) -> None:
        """Store the position of the rows."""
        self.block = block
        self.start = start
        self.rows = rows

    def __getitem__(self, name: str) -> Array:
        """Return the rows of one state, as an array of the host."""
        return self.block.pool.memory.read(self.block.rows_of(name, self.start, self.rows))

    def own(self) -> "RowsOfBlock":
        """Return a copy of the rows, in a new block."""
        return self.block.own_rows(self.start, self.rows)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the states."""
        return iter(self.block.arrays)

    def __len__(self) -> int:
        """Return the number of states."""
        return len(self.block.arrays)


class BlockPool:
    """The blocks of one graph.

    Every method may be called from any thread. None takes a lock, because memory may become free at any moment.

    Args:
        graph: whose states they hold.
        memory: in which they lie.

    Attributes:
        graph: whose states they hold.
        memory: in which they lie.
        rows_at: where every state has its rows, by graph input.
    """

    def __init__(self, graph: Graph, memory: Memory = HOST) -> None:
        """Start without memory."""
        self.graph, self.memory = graph, memory
        self._layouts: dict[int, Layout] = {}
        self._spare: dict[int, deque[_End]] = {}
        self._made: dict[int, list[weakref.ref[Any]]] = {}
        self._begun: dict[int, RowsOfBlock] = {}
        self.rows_at = {tensor.name: graph.rows_at(tensor) for tensor in graph.inputs if tensor.role == "state"}
        self._initial = {state.input: array_of_initial(state.initial, state.dtype) for state in graph.states}
        self._most_rows, self._runs = graph.row_buckets[-1], 1

    def take(self, rows: int) -> Block:
        """Return a block of some rows that no array lies in; its values are undefined."""
        room = room_for(rows)
        try:
            content = self._spare[room].pop().content
        except (KeyError, IndexError):
            content, room = self._larger(room, 2 * rows)
        spare = self._spare.setdefault(room, deque())
        arrays = self.memory.arrays(_Held(content, spare), self._layout(rows).places)
        return Block(self, rows, room, arrays)

    def _larger(self, room: int, most: int) -> tuple[Any, int]:
        """Return free memory of more than `room` and at most `most` rows, else new memory; and its number of rows."""
        for kept in sorted(each for each in list(self._spare) if room < each <= most):
            with contextlib.suppress(KeyError, IndexError):
                return self._spare[kept].pop().content, kept
        content = self.memory.reserve(self._layout(room).end)
        self._made.setdefault(room, []).append(weakref.ref(content))
        return content, room

    def _layout(self, rows: int) -> Layout:
        layout = self._layouts.get(rows)
        if layout is None:
            sizes = {} if self.graph.batch_axis is None else {self.graph.batch_axis: rows}
            states = [(each.input, static_shape(each.shape, sizes), each.dtype) for each in self.graph.states]
            layout = self._layouts[rows] = layout_of(states)
        return layout

    def initial(self, rows: int) -> "RowsOfBlock":
        """Return the initial values of some rows; streams share them and never write them."""
        found = self._begun.get(rows)
        if found is None:
            block = self.take(rows)
            for state in self.graph.states:
                self.memory.copy(block.arrays[state.input], self._initial[state.input])
            found = self._begun[rows] = RowsOfBlock(block, 0, rows)
        return found

    def keep_for(self, runs: int) -> None:
        """Keep enough free memory for `runs` runs at one time, if that is more than before."""
        self._runs = max(self._runs, runs)

    def tidy(self, room: int) -> None:
        """Free memory that is not needed: more than half of the rows in use, and more than all runs at one time take.

        Args:
            room: number of rows of a memory that has become free; nothing is freed while few memories of this size are
                free.
        """
        if 2 * room * len(self._spare.get(room, ())) < self._runs * self._most_rows:
            return
        spare = _rows(self._spare)
        self._let_go(spare - max((_rows(self._made) - spare) // 2, self._runs * self._most_rows))

    def trim(self) -> None:
        """Free all memory that is not in use; later runs allocate it anew."""
        self._begun.clear()
        self._let_go(_rows(self._spare))
        self.memory.trim()

    def close(self) -> None:
        """Free all memory that is not in use, and keep none that becomes free later."""
        self.trim()
        self._spare, self._made = {}, {}

    def _let_go(self, rows: int) -> None:
        """Free memory of at least this many rows, of the size that takes most of the free memory."""
        if rows <= 0:
            return
        while rows > 0:
            room, spare = max(list(self._spare.items()), key=lambda entry: entry[0] * len(entry[1]))
            with contextlib.suppress(IndexError):  # another thread was quicker
                self.memory.release(spare.popleft().content)
            rows -= room
        for references in list(self._made.values()):  # changed in place: another thread may add to it
            for dead in [reference for reference in references if reference() is None]:
                with contextlib.suppress(ValueError):
                    references.remove(dead)


def _rows(memories: Mapping[int, Sized]) -> int:
    """Return the total number of rows of the given memories, which are keyed by their number of rows."""
    return sum(room * len(each) for room, each in list(memories.items()))


def layout_of(arrays: Iterable[tuple[str, tuple[int, ...], str]]) -> Layout:
    """Return the positions of arrays of some names, shapes and dtypes in one block of memory."""
    places, start = [], 0
    for name, shape, dtype in arrays:
        places.append(Place(name, shape, np.dtype(dtype), start))
        start += -(-tensor_bytes(shape, dtype) // ALIGNMENT) * ALIGNMENT
    return Layout(tuple(places), max(start, 1))


def room_for(rows: int) -> int:
    """Return the number of rows of the memory of a block: a power of two, or three quarters of one.

    At most a third of the memory is unused, and there are few sizes, so that memory can be reused.
    """
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 and power > 2 else power


def settle(block: Block, rows: Sequence[int]) -> list[RowsOfBlock]:
    """Return the states of streams after a run, as rows of the block that it has written.

    They are copied out of the block if it is too large for them.

    Args:
        block: the block that the run wrote.
        rows: number of rows of every stream, in the order of the block.
    """
    places = zip(itertools.accumulate(rows, initial=0), rows, strict=False)
    if block.is_too_large(sum(rows)):
        return [block.own_rows(start, count) for start, count in places]
    return [RowsOfBlock(block, start, count) for start, count in places]


def share(states: Sequence[StreamState]) -> None:
    """Record the states of several streams as sharers of their block."""
    first = states[0].values
    if len(states) > 1 and isinstance(first, RowsOfBlock) and first.block.rows > states[0].rows:
        first.block.sharers = [weakref.ref(state) for state in states]


def leave(states: Sequence[StreamState]) -> None:
    """Remove spent states from the sharers of their blocks; the remaining rows are copied if a block is too large.

    A run that reads the block at the same time is not affected: rows are copied, and the run holds the block.
    """
    for block in {values.block for state in states if isinstance(values := state.values, RowsOfBlock)}:
        if block.sharers:
            block.let_go(states)
        block.pool.tidy(block.room)


def whole_block(carried: Sequence[Mapping[str, Array]], rows: int) -> Block | None:
    """Return the block of `rows` rows that the states of some streams fill, in their order; None without one."""
    last = carried[-1] if carried else None
    if isinstance(last, RowsOfBlock) and last.start + last.rows == rows:
        return leading_block(carried, rows)
    return None


def is_in_place_of(state: StreamState, old: StreamState) -> bool:
    """Return whether a state lies in the block of another one, which it has replaced among the sharers."""
    values, before = state.values, old.values
    return isinstance(values, RowsOfBlock) and isinstance(before, RowsOfBlock) and values.block is before.block


def leading_block(carried: Sequence[Mapping[str, Array]], rows: int) -> Block | None:
    """Return the block of `rows` rows whose first ones are the states of some streams, in their order; else None.

    What lies in the rows behind them, be it of another stream, reaches no answer.
    """
    block, start = None, 0
    for values in carried:
        if not isinstance(values, RowsOfBlock) or values.block.rows != rows or values.start != start:
            return None
        if start and values.block is not block:
            return None
        block = values.block
        start += values.rows
    return block


def by_place(carried: Sequence[Mapping[str, Array]]) -> list[int]:
    """Return the order in which states of some streams lie in memory, as their indices: block by block, row by row.

    Streams that run together again find their states in the order of the block, in whatever order they come.
    """
    first: dict[int, int] = {}
    places = []
    for index, values in enumerate(carried):
        block, start = (id(values.block), values.start) if isinstance(values, RowsOfBlock) else (-1, index)
        places.append((first.setdefault(block, index), start, index))
    return [index for _, _, index in sorted(places)]


def joined(pool: BlockPool, carried: Sequence[Mapping[str, Array]], rows: int) -> Mapping[str, Any]:
    """Return the states of some streams as one array of `rows` rows per graph input, in the memory of a pool.

    Nothing is copied if they fill a block, or are those of one stream. Otherwise they are copied into a new block,
    whose free rows get initial states.

    Args:
        pool: the pool of the graph.
        carried: the state arrays of every stream, in order.
        rows: number of rows, at least that of all streams together.
    """
    block = whole_block(carried, rows)
    if block is not None:
        return block.arrays
    if len(carried) == 1:
        alone = {name: buffer_of(carried[0], name) for name in pool.rows_at}
        if all(map(pool.memory.is_read, alone.values())) and _have_rows(pool, alone, rows):
            return alone
    block = pool.take(rows)
    for name, array in block.arrays.items():
        parts, axis = [buffer_of(values, name) for values in carried], pool.rows_at[name]
        if axis is None:
            pool.memory.copy(array, parts[0])
            continue
        if free := rows - sum(part.shape[axis] for part in parts):
            parts += [buffer_of(pool.initial(1), name)] * free  # one row for all: memory for each number is not kept
        pool.memory.join(array, parts, axis)
    return block.arrays


def _have_rows(pool: BlockPool, states: Mapping[str, Any], rows: int) -> bool:
    """Return whether states have a number of rows."""
    return all(axis is None or states[name].shape[axis] == rows for name, axis in pool.rows_at.items())


def buffer_of(values: Mapping[str, Array], name: str) -> Any:
    """Return one state as a buffer of the memory that it lies in, without a copy."""
    return values.block.rows_of(name, values.start, values.rows) if isinstance(values, RowsOfBlock) else values[name]


def rows_of(array: Any, axis: int | None, start: int, rows: int) -> Any:
    """Return a view of some rows of a buffer along an axis; the whole buffer without an axis."""
    if axis is None or array.shape[axis] == rows:
        return array
    return array[(slice(None),) * axis + (slice(start, start + rows),)]
