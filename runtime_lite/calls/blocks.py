"""Where the states of streams lie from call to call: in blocks of rows, which runs write and streams share.

The states of streams that ran together stay where the run wrote them, so that no byte of theirs moves while these
streams go on together, in the same order. When so many have left that less than a quarter of the memory is in use
(`LEAST_USED`), the others get rows of their own: streams hold at most four times the memory that their states need, and
few rows are copied twice. What an array lies in is not written while anything holds it: the memory of a block comes
back with the last array in it, whoever held that, and after a run that failed, too.
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
"""States move out of a block when they use less of its memory than one part in so many."""

ALIGNMENT = 64
"""Where arrays begin: a cache line, which vector instructions want too."""

OWN_MAPPING = 2**16
"""Memory of at least so many bytes is mapped by itself and goes back to the system when it is let go of."""


class HostBytes:
    """Memory of this process, and how NumPy wants to be told of it."""

    __slots__ = ("__weakref__", "array", "interface")

    def __init__(self, array: Array) -> None:
        """Hold it."""
        self.array, self.interface = array, array.__array_interface__


class HostMemory:
    """Memory of this process, whose buffers are arrays of NumPy."""

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
        """Do nothing: the bytes go with the last reference."""

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
        """Do nothing: arrays keep their memory."""


HOST = HostMemory()
"""The memory of this process."""


class _Held:
    """What the arrays of a block lie in; when the last of them is gone, its bytes go where its end says."""

    __slots__ = ("__array_interface__", "__weakref__", "_end", "content")

    def __init__(self, content: Any, spare: "deque[_End]") -> None:
        self.content, self.__array_interface__ = content, content.interface
        self._end = _End(self, content, spare)


class _End(weakref.ref[_Held]):
    """The bytes of a memory, which are appended to what is spare when nothing lies in them any more.

    No line of Python runs for that: Python drops what is raised in finalizers, and Ctrl-C would be lost there.
    """

    __slots__ = ("content",)

    def __new__(cls, held: _Held, content: Any, spare: "deque[_End]") -> "_End":
        return super().__new__(cls, held, spare.append)

    def __init__(self, held: _Held, content: Any, spare: "deque[_End]") -> None:
        self.content = content


class Block:
    """State arrays of some rows, which lie in memory that nobody else writes while one of them is held.

    Attributes:
        pool: where it is from.
        arrays: by graph input of role state.
        rows: number of rows.
        room: rows that its memory has, as many or more.
        sharers: the states that lie in it, if they are those of several streams.
    """

    __slots__ = ("arrays", "pool", "room", "rows", "sharers")

    def __init__(self, pool: "BlockPool", rows: int, room: int, arrays: dict[str, Any]) -> None:
        """Hold the arrays."""
        self.pool = pool
        self.rows, self.room = rows, room
        self.arrays = arrays
        self.sharers: list[weakref.ref[StreamState]] = []

    def rows_of(self, name: str, start: int, rows: int) -> Any:
        """A view of some rows of one state, in the memory of the pool."""
        return rows_of(self.arrays[name], self.pool.rows_at[name], start, rows)

    def own_rows(self, start: int, rows: int) -> "RowsOfBlock":
        """Some rows, copied into a block that holds no others."""
        own = self.pool.take(rows)
        for name, array in own.arrays.items():
            self.pool.memory.copy(array, self.rows_of(name, start, rows))
        return RowsOfBlock(own, 0, rows)

    def is_too_large(self, rows: int) -> bool:
        """Whether it is more than so many rows may hold."""
        return rows * LEAST_USED < self.room

    def let_go(self, spent: Sequence[StreamState]) -> None:
        """Give the sharers that are not spent rows of their own if the block is too large for them."""
        left = [state for sharer in self.sharers if (state := sharer()) is not None and state not in spent]
        places = {state: values for state in left if isinstance(values := state.values, RowsOfBlock)}
        places = {state: values for state, values in places.items() if values.block is self}
        is_left = self.is_too_large(sum(state.rows for state in places))
        self.sharers = [] if is_left else [weakref.ref(state) for state in places]
        if is_left:
            for state, values in places.items():
                state.values = values.own()

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
        """Return the rows of one state, as an array of the host."""
        return self.block.pool.memory.read(self.block.rows_of(name, self.start, self.rows))

    def own(self) -> "RowsOfBlock":
        """The same, copied into a block that holds no others."""
        return self.block.own_rows(self.start, self.rows)

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
        memory: in which they lie.

    Attributes:
        graph: whose states they hold.
        memory: in which they lie.
        rows_at: where every state has its rows, by graph input.
    """

    def __init__(self, graph: Graph, memory: Memory = HOST) -> None:
        """Start empty."""
        self.graph, self.memory = graph, memory
        self._layouts: dict[int, Layout] = {}
        self._spare: dict[int, deque[_End]] = {}
        self._made: dict[int, list[weakref.ref[Any]]] = {}
        self._begun: dict[int, RowsOfBlock] = {}
        self.rows_at = {tensor.name: graph.rows_at(tensor) for tensor in graph.inputs if tensor.role == "state"}
        self._initial = {state.input: array_of_initial(state.initial, state.dtype) for state in graph.states}
        self._most_rows, self._runs = graph.row_buckets[-1], 1

    def take(self, rows: int) -> Block:
        """Return a block of some rows that nothing lies in; it holds whatever was there."""
        room = room_for(rows)
        try:
            content = self._spare[room].pop().content
        except (KeyError, IndexError):
            content, room = self._larger(room, 2 * rows)
        spare = self._spare.setdefault(room, deque())
        arrays = self.memory.arrays(_Held(content, spare), self._layout(rows).places)
        return Block(self, rows, room, arrays)

    def _larger(self, room: int, most: int) -> tuple[Any, int]:
        """Memory that is kept of more rows, at most so many, and their number; else new memory."""
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
        """Return the initial values of some rows; streams share them, and write nothing there."""
        found = self._begun.get(rows)
        if found is None:
            block = self.take(rows)
            for state in self.graph.states:
                self.memory.copy(block.arrays[state.input], self._initial[state.input])
            found = self._begun[rows] = RowsOfBlock(block, 0, rows)
        return found

    def keep_for(self, runs: int) -> None:
        """Keep as many rows as so many runs at once can have, if that is more than before, beside what is held."""
        self._runs = max(self._runs, runs)

    def tidy(self, room: int) -> None:
        """Let go of what is kept beyond half as many rows as are held, or as many as the runs at once can have.

        Args:
            room: rows of a memory that comes back; nothing is counted while few of its size are kept.
        """
        if 2 * room * len(self._spare.get(room, ())) < self._runs * self._most_rows:
            return
        spare = _rows(self._spare)
        self._let_go(spare - max((_rows(self._made) - spare) // 2, self._runs * self._most_rows))

    def trim(self) -> None:
        """Give back what is kept; what comes later is kept again."""
        self._begun.clear()
        self._let_go(_rows(self._spare))
        self.memory.trim()

    def close(self) -> None:
        """Keep nothing any more."""
        self.trim()
        self._spare, self._made = {}, {}

    def _let_go(self, rows: int) -> None:
        """Let go of so many rows that are spare, or a few more, of the size of which there are most."""
        if rows <= 0:
            return
        while rows > 0:
            room, spare = max(list(self._spare.items()), key=lambda each: each[0] * len(each[1]))
            with contextlib.suppress(IndexError):  # another thread was quicker
                self.memory.release(spare.popleft().content)
            rows -= room
        for made in list(self._made.values()):  # changed in place: another thread may add to it
            for gone in [each for each in made if each() is None]:
                with contextlib.suppress(ValueError):
                    made.remove(gone)


def _rows(memories: Mapping[int, Sized]) -> int:
    """How many rows there are, of memories by their rows."""
    return sum(room * len(each) for room, each in list(memories.items()))


def layout_of(arrays: Iterable[tuple[str, tuple[int, ...], str]]) -> Layout:
    """Return where arrays of some names, shapes and dtypes lie beside each other."""
    places, start = [], 0
    for name, shape, dtype in arrays:
        places.append(Place(name, shape, np.dtype(dtype), start))
        start += -(-tensor_bytes(shape, dtype) // ALIGNMENT) * ALIGNMENT
    return Layout(tuple(places), max(start, 1))


def room_for(rows: int) -> int:
    """Return of how many rows the memory of a block of some rows is: a power of two, or three quarters of one.

    At most a third of it is not used, and there are few kinds of it, so that it can be used again.
    """
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 and power > 2 else power


def settle(block: Block, rows: Sequence[int]) -> list[RowsOfBlock]:
    """Return what streams carry on, of a block that a run has written.

    They stay there, or are copied if the block is much more than they need.

    Args:
        block: what the run wrote.
        rows: of every stream, one after the other.
    """
    places = zip(itertools.accumulate(rows, initial=0), rows, strict=False)
    if block.is_too_large(sum(rows)):
        return [block.own_rows(start, count) for start, count in places]
    return [RowsOfBlock(block, start, count) for start, count in places]


def share(states: Sequence[StreamState]) -> None:
    """Remember who shares the block in which the states of several streams have stayed."""
    first = states[0].values
    if len(states) > 1 and isinstance(first, RowsOfBlock) and first.block.rows > states[0].rows:
        first.block.sharers = [weakref.ref(state) for state in states]


def leave(states: Sequence[StreamState]) -> None:
    """Let go of states that are spent: those that shared a block with them get rows of their own if it is too large.

    A run that reads the block meanwhile does not notice: the rows are copied, and it holds the block.
    """
    for block in {values.block for state in states if isinstance(values := state.values, RowsOfBlock)}:
        if block.sharers:
            block.let_go(states)
        block.pool.tidy(block.room)


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


def joined(pool: BlockPool, carried: Sequence[Mapping[str, Array]], rows: int) -> Mapping[str, Any]:
    """Return what some streams carry as states of a number of rows, by graph input, in the memory of a pool.

    They lie where they are if they fill a block, or are those of one stream. Otherwise they are copied into one, whose
    free rows hold initial states.

    Args:
        pool: of the graph.
        carried: by every stream, in order.
        rows: as many as the streams have, or more.
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
    """Whether states are those of a number of rows."""
    return all(axis is None or states[name].shape[axis] == rows for name, axis in pool.rows_at.items())


def buffer_of(values: Mapping[str, Array], name: str) -> Any:
    """A state where it lies."""
    return values.block.rows_of(name, values.start, values.rows) if isinstance(values, RowsOfBlock) else values[name]


def rows_of(array: Any, axis: int | None, start: int, rows: int) -> Any:
    """Return some rows of a buffer along an axis, as a view; all of one that has none."""
    if axis is None or array.shape[axis] == rows:
        return array
    return array[(slice(None),) * axis + (slice(start, start + rows),)]
