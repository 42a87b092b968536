"""What a state lies in is written by nobody while it is held, and states hold at most four times what they need."""

import dataclasses
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.calls.blocks import (
    ALIGNMENT,
    HOST,
    OWN_MAPPING,
    Block,
    BlockPool,
    HostBytes,
    RowsOfBlock,
    by_place,
    joined,
    leading_block,
    leave,
    room_for,
    rows_of,
    settle,
    share,
    whole_block,
)
from runtime_lite.calls.state import StreamState
from runtime_lite.executors.memory import Place
from runtime_lite.format.arrays import Array
from runtime_lite.format.initial_value import initial_of_array
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import streaming_graph

GRAPH = streaming_graph()
ROW_SHAPE = (5, 2)


def written(pool: BlockPool, rows: int = 4) -> Block:
    """A block whose row n holds n."""
    block = pool.take(rows)
    block.arrays["keys"][:] = np.arange(rows)[:, None, None]
    return block


def states_in(block: Block, rows: Sequence[int]) -> list[StreamState]:
    states = [StreamState(each.rows, {}, each) for each in settle(block, rows)]
    share(states)
    return states


def keys(state: StreamState) -> Array:
    return state.values["keys"]


def test_states_that_fill_a_block_stay_where_the_run_wrote_them() -> None:
    block = written(BlockPool(GRAPH))
    states = states_in(block, (1, 2, 1))
    for state, numbers in zip(states, ([0], [1, 2], [3]), strict=True):
        assert keys(state)[:, 0, 0].tolist() == numbers
        assert np.shares_memory(keys(state), block.arrays["keys"])
    assert whole_block([state.values for state in states], 4) is block


@pytest.mark.parametrize(
    ("rows", "stay"), [((1, 1), False), ((2,), False), ((1,), False), ((1, 1, 1), True), ((3,), True), ((1, 2), True)]
)
def test_states_that_use_less_than_a_quarter_of_a_block_get_rows_of_their_own(
    rows: tuple[int, ...], stay: bool
) -> None:
    block = written(BlockPool(GRAPH), 12)
    states = states_in(block, rows)
    assert [number for state in states for number in keys(state)[:, 0, 0]] == list(range(sum(rows)))
    for state in states:
        assert np.shares_memory(keys(state), block.arrays["keys"]) == stay
        assert keys(state).shape == (state.rows, *ROW_SHAPE)


def test_views_of_rows_are_made_where_they_are_asked_for() -> None:
    first, second = states_in(written(BlockPool(GRAPH), 2), (1, 1))
    assert list(second.values) == ["keys"] and len(second.values) == 1
    assert keys(second) is not keys(second) and np.shares_memory(keys(second), keys(second))
    assert not np.shares_memory(keys(first), keys(second))


def test_a_block_is_whole_only_where_all_of_it_lies_in_order() -> None:
    pool = BlockPool(GRAPH)
    four = [state.values for state in states_in(written(pool), (1, 1, 1, 1))]
    other = [state.values for state in states_in(written(pool), (1, 1, 1, 1))]
    plain = [{"keys": np.zeros((1, *ROW_SHAPE), np.float32)}]
    assert whole_block(four, 4) is not None and whole_block(other, 4) is not None
    assert whole_block(four[:3], 4) is None
    assert leading_block(four[:3], 4) is whole_block(four, 4)  # others may lie behind
    for carried in (
        four[1:],
        [four[1], four[0], four[2], four[3]],
        [*four[:3], other[3]],
        [four[0], *other[1:]],
        [*four[:3], *plain],
        plain,
    ):
        assert whole_block(carried, 4) is leading_block(carried, 4) is None
    (alone,) = settle(written(pool, 1), (1,))
    assert whole_block([alone], 1) is alone.block and whole_block([alone], 4) is None


def test_the_order_of_states_in_memory_is_by_block_and_row() -> None:
    pool = BlockPool(GRAPH)
    four, two = ([state.values for state in states_in(written(pool, rows), (1,) * rows)] for rows in (4, 2))
    plain = {"keys": np.zeros((1, *ROW_SHAPE), np.float32)}
    assert by_place([four[2], two[1], four[0], two[0], four[3]]) == [2, 0, 4, 3, 1]
    assert by_place([two[1], plain, four[3], plain, two[0]]) == [4, 0, 1, 3, 2]


def test_a_block_comes_back_with_the_last_state_that_lies_in_it() -> None:
    pool = BlockPool(GRAPH)
    states = states_in(written(pool), (1, 1, 1, 1))
    place = keys(states[0]).ctypes.data
    others = []
    while states:
        others.append(pool.take(4))
        assert others[-1].arrays["keys"].ctypes.data != place
        states.pop()
    assert pool.take(4).arrays["keys"].ctypes.data == place


def test_when_less_than_a_quarter_is_left_it_gets_rows_of_its_own_and_the_block_comes_back() -> None:
    pool = BlockPool(GRAPH)
    states = states_in(written(pool, 8), (1,) * 8)
    place, lie_in = keys(states[0]).ctypes.data, [state.values for state in states]
    leave(states[:1])
    leave(states[1:6])
    assert [state.values for state in states] == lie_in, "a quarter of the block is in use"
    leave(states[6:7])
    assert [keys(state)[0, 0, 0] for state in states] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert keys(states[7]).shape == (1, *ROW_SHAPE) and not np.shares_memory(keys(states[7]), keys(states[6]))
    del states[:7], lie_in
    assert pool.take(8).arrays["keys"].ctypes.data == place


def test_states_that_leave_together_are_not_copied() -> None:
    states = states_in(written(BlockPool(GRAPH)), (1, 1, 1, 1))
    lie_in = [state.values for state in states]
    leave(states)
    leave(states)
    assert all(state.values is values for state, values in zip(states, lie_in, strict=True))


def test_who_is_gone_already_is_not_asked() -> None:
    states = states_in(written(BlockPool(GRAPH)), (1, 1, 1, 1))
    del states[2]
    leave(states[:1])
    assert [keys(state)[0, 0, 0] for state in states] == [0, 1, 3]


def test_what_a_reader_holds_is_not_written_while_the_state_moves_elsewhere() -> None:
    pool = BlockPool(GRAPH)
    first, second = states_in(written(pool, 8), (7, 1))
    held = second.values
    leave([first])
    del first
    assert isinstance(held, RowsOfBlock) and second.values is not held
    pool.take(8).arrays["keys"][:] = np.nan
    assert held["keys"][0, 0, 0] == 7 and keys(second)[0, 0, 0] == 7


def spare_rows(pool: BlockPool) -> int:
    return sum(rows * len(spare) for rows, spare in pool._spare.items())


def test_no_more_is_kept_than_half_of_what_is_held_or_the_runs_at_once_can_write() -> None:
    pool = BlockPool(GRAPH)
    for runs in (1, 2):
        pool.keep_for(runs)
        blocks = [pool.take(rows) for rows in (1, 2, 3, 4) * 10]
        assert spare_rows(pool) == 0
        del blocks[:20]
        pool.tidy(4)
        assert 20 < spare_rows(pool) <= 25, "half as much as is held"
        del blocks
        pool.tidy(4)
        assert 4 * runs - 3 <= spare_rows(pool) <= 4 * runs
        pool.trim()


def test_what_is_spare_is_given_to_who_wants_a_little_less() -> None:
    pool = BlockPool(GRAPH)
    place = pool.take(4).arrays["keys"].ctypes.data
    assert pool.take(1).arrays["keys"].ctypes.data != place, "four times as much is too much"
    small = pool.take(3)
    assert (small.rows, small.room) == (3, 4) and small.arrays["keys"].ctypes.data == place
    assert small.arrays["keys"].shape == (3, *ROW_SHAPE)


def test_the_memory_of_a_block_is_a_third_larger_at_most() -> None:
    rooms = [room_for(rows) for rows in range(1, 65)]
    assert all(rows <= room <= 1.5 * rows for rows, room in enumerate(rooms, 1))
    assert len(set(rooms)) == 12 and room_for(16) == 16


def test_bytes_go_with_the_pool_or_with_what_lies_in_them_when_it_is_closed() -> None:
    pool = BlockPool(GRAPH)
    held, spare = pool.take(4), pool.take(1)
    bytes_of = [weakref.ref(_lies_in(block)) for block in (held, spare)]
    del spare
    assert [each() is None for each in bytes_of] == [False, False]
    pool.close()
    assert [each() is None for each in bytes_of] == [False, True]
    del held
    assert [each() is None for each in bytes_of] == [True, True]


def _lies_in(block: Block) -> Array:
    base: Any = block.arrays["keys"]
    while isinstance(base, np.ndarray):
        base = base.base
    content: Array = base._end.content.array
    return content


INTERRUPTED = """
import signal, sys
from runtime_lite.calls.blocks import BlockPool
from tests.runtime_lite.calls.test_blocks import GRAPH

class Noticed(Exception):
    pass

def interrupt(number, frame):
    raise Noticed

signal.signal(signal.SIGALRM, interrupt)
pool, seen = BlockPool(GRAPH), 0
while seen < 2000:
    try:
        signal.setitimer(signal.ITIMER_REAL, 50e-6)
        for _ in range(200_000):
            pool.take(2)
        sys.exit("no signal came")
    except Noticed:
        seen += 1
"""


def test_a_signal_is_never_lost_where_a_block_ends() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_array_alone_keeps_what_it_lies_in() -> None:
    pool = BlockPool(GRAPH)
    pool.keep_for(2)
    states = states_in(written(pool), (1, 1, 1, 1))
    held = keys(states[2])[:, 1:]
    place = keys(states[0]).ctypes.data
    states.clear()
    taken = pool.take(4)
    taken.arrays["keys"][:] = np.nan
    assert taken.arrays["keys"].ctypes.data != place and (held == 2).all()
    del held, taken
    assert place in [block.arrays["keys"].ctypes.data for block in [pool.take(4), pool.take(4)]]


def test_arrays_of_a_block_are_aligned_and_do_not_overlap() -> None:
    keys = GRAPH.states[0]
    odd = [
        dataclasses.replace(keys, input=f"s{n}", shape=("batch", n), dtype=t) for n, t in ((3, "int8"), (5, "float16"))
    ]
    inputs = (*GRAPH.inputs, *(dataclasses.replace(GRAPH.inputs[3], name=each.input, shape=each.shape) for each in odd))
    block = BlockPool(dataclasses.replace(GRAPH, inputs=inputs, states=(*odd, keys))).take(3)
    assert [(array.shape, array.dtype.name) for array in block.arrays.values()] == [
        ((3, 3), "int8"),
        ((3, 5), "float16"),
        ((3, *ROW_SHAPE), "float32"),
    ]
    for number, array in enumerate(block.arrays.values()):
        array.fill(number)
        assert array.ctypes.data % 64 == 0
    assert [np.unique(array).tolist() for array in block.arrays.values()] == [[0], [1], [2]]


def test_threads_never_get_the_same_block() -> None:
    pool, clashes = BlockPool(GRAPH), []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait(PATIENCE_S)
        for turn in range(500):
            block = pool.take(2)
            block.arrays["keys"][:] = mark = 1000 * number + turn
            if not (block.arrays["keys"] == mark).all():
                clashes.append(mark)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not clashes


def test_a_graph_without_an_axis_of_rows_has_one_row() -> None:
    fixed = (2, *ROW_SHAPE)
    graph = dataclasses.replace(
        GRAPH,
        axes={},
        batch_axis=None,
        inputs=tuple(dataclasses.replace(t, shape=fixed) if t.role == "state" else t for t in GRAPH.inputs),
        states=tuple(dataclasses.replace(state, shape=fixed) for state in GRAPH.states),
    )
    block = BlockPool(graph).take(1)
    (values,) = settle(block, (1,))
    assert values["keys"] is block.arrays["keys"] and values["keys"].shape == fixed


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_are_cut_on_any_axis(axis: int) -> None:
    array = np.arange(60).reshape(3, 4, 5)
    rows = array.shape[axis] - 1
    for start in (0, 1):
        np.testing.assert_array_equal(
            rows_of(array, axis, start, rows), np.take(array, range(start, start + rows), axis)
        )
    assert rows_of(array, axis, 0, rows + 1) is array is rows_of(array, None, 3, 1)


def test_initial_values_lie_in_a_block_that_new_streams_share_whatever_was_there() -> None:
    pool = BlockPool(dataclasses.replace(GRAPH, states=(dataclasses.replace(GRAPH.states[0], initial=-7.5),)))
    spoiled = pool.take(2)
    spoiled.arrays["keys"].fill(np.nan)
    del spoiled
    first, second = pool.initial(2), pool.initial(2)
    assert (first["keys"] == -7.5).all() and first["keys"].shape == (2, *ROW_SHAPE)
    assert first is second and whole_block([first], 2) is first.block and whole_block([first, second], 4) is None
    for each in (first, second):
        leave([StreamState(2, {}, each)])
    assert (pool.initial(2)["keys"] == -7.5).all()


def test_initial_values_that_differ_are_those_of_every_row() -> None:
    numbers = np.arange(np.prod(ROW_SHAPE), dtype=np.float32).reshape(1, *ROW_SHAPE)
    state = dataclasses.replace(GRAPH.states[0], initial=initial_of_array(numbers))
    found = BlockPool(dataclasses.replace(GRAPH, states=(state,))).initial(2)["keys"]
    assert np.array_equal(found, np.repeat(numbers, 2, axis=0))


def test_large_blocks_are_memory_of_the_system_that_can_be_written() -> None:
    large = dataclasses.replace(GRAPH.states[0], shape=("batch", 100, 200))
    inputs = tuple(dataclasses.replace(t, shape=large.shape) if t.role == "state" else t for t in GRAPH.inputs)
    pool = BlockPool(dataclasses.replace(GRAPH, inputs=inputs, states=(large,)))
    first, second = states_in(pool.take(2), (1, 1))
    keys(first)[:], keys(second)[:] = 1, 2
    held = keys(second)
    del first, second
    assert (held == 2).all() and held.ctypes.data % 64 == 0
    if sys.platform == "linux":
        assert _rights(held.ctypes.data) == "rw-p", "a process that is forked off has its own"


def _rights(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, *_ = line.split()
        start, end = (int(number, 16) for number in place.split("-"))
        if start <= address < end:
            return rights
    raise AssertionError(address)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_free_rows_hold_initial_states_and_keep_memory_of_one_row(rows: int) -> None:
    pool = BlockPool(GRAPH)
    carried = [{"keys": np.full((1, *ROW_SHAPE), number, np.float32)} for number in range(1, rows + 1)]
    found = joined(pool, carried, 4)["keys"]
    assert found[:, 0, 0].tolist() == [*range(1, rows + 1), *[0] * (4 - rows)]
    assert list(pool._begun) == [1]


# Memory of the host


class Held:
    """Holds bytes, as blocks do."""

    def __init__(self, content: HostBytes) -> None:
        self.content = content

    @property
    def __array_interface__(self) -> object:
        return self.content.interface


@pytest.mark.parametrize("size", [256, OWN_MAPPING])
def test_arrays_lie_in_what_was_reserved_one_behind_the_other(size: int) -> None:
    held = Held(HOST.reserve(size))
    places = [Place("a", (2, 3), np.dtype(np.float32), 0), Place("b", (4,), np.dtype(np.int64), ALIGNMENT)]
    arrays = HOST.arrays(held, places)
    assert arrays["a"].ctypes.data % ALIGNMENT == 0
    assert arrays["b"].ctypes.data - arrays["a"].ctypes.data == ALIGNMENT
    HOST.copy(arrays["a"], np.array(3, np.float32))
    HOST.join(arrays["b"], [np.arange(3), np.arange(1)], 0)
    assert HOST.is_read(arrays["a"])
    assert HOST.read(arrays["a"]).tolist() == [[3] * 3] * 2
    assert HOST.read(arrays["b"]).tolist() == [0, 1, 2, 0]
    HOST.release(held.content)
    HOST.close()
