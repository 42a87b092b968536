"""New frames go where they belong, whoever runs together, and every state that is held is what it was."""

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from runtime_lite.calls import blocks
from runtime_lite.calls.blocks import RowsOfBlock
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.in_place import HeldRows, is_in_place
from runtime_lite.calls.state import StreamState, copy_of_state, oldest_first
from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import Array
from runtime_lite.states.kind import StateKind
from tests.runtime_lite.bundles import streaming_graph
from tests.runtime_lite.in_place_graph import SLOTS, WIDTH, WRITTEN_IN_PLACE, in_place_graph


class Summing:
    """Runs the graph in NumPy; what lies behind the end of a row is NaN, as if it could not be seen."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.totals: list[list[float]] = []
        self.fails = False
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        assert inputs["x"].shape == (sizes["batch"], sizes["time"], WIDTH)
        self.read.append(inputs["keys"].ctypes.data)
        self.totals.append(inputs["total"][:, 0].tolist())
        self.meanwhile()
        for row, (length, new) in enumerate(zip(inputs["past_length"], inputs["time_length"], strict=True)):
            for name, at in (("keys", 0), ("values", 1)):  # free slots hold zeros
                assert not np.moveaxis(inputs[name][row], at, 0)[length:].any()
            x, total = inputs["x"][row], inputs["total"][row]
            outputs["y"][row] = x + inputs["keys"][row].sum(0) + 2 * inputs["values"][row].sum(1) + 1000 * total
            outputs["new_keys"][row], outputs["new_values"][row] = x, x.T
            outputs["new_keys"][row, new:], outputs["new_values"][row, :, new:] = np.nan, np.nan
            outputs["new_total"][row] = total + x[:new, 0].sum()
        if self.fails:
            raise RuntimeError("the backend fails")

    def close(self) -> None:
        """Hold nothing."""


@pytest.fixture
def summing() -> Summing:
    return Summing()


@pytest.fixture(params=WRITTEN_IN_PLACE, ids=lambda kind: kind.update)
def kind(request: pytest.FixtureRequest) -> StateKind:
    found: StateKind = request.param
    return found


@pytest.fixture
def runner(summing: Summing, kind: StateKind) -> GraphRunner:
    return GraphRunner("g", in_place_graph(kind=kind), summing, check_finite=True)


def feed(runner: GraphRunner, number: float, frames: int = 1, rows: int = 1) -> Feed:
    return runner.check("test", {"x": np.full((rows, frames, WIDTH), number, np.float32)})


def stepped(
    runner: GraphRunner, states: Sequence[StreamState], feeds: Sequence[Feed], rows: int
) -> tuple[list[float], list[StreamState]]:
    """What the last frame of each stream becomes, and the states behind."""
    time = 1 if all(each.sizes["time"] == 1 for each in feeds) else 4
    found = runner.step_streams(feeds, states, {"batch": rows, "time": time})
    return [float(outputs["y"][0, -1, 0]) for outputs, _ in found], [state for _, state in found]


def said(number: float, frames: Sequence[float]) -> float:
    """What a frame becomes behind others."""
    return number + 3 * sum(frames[-SLOTS:]) + 1000 * sum(frames)


def held(state: StreamState, row: int = 0) -> list[float]:
    """The frames that a row of a state holds, the oldest first; there is nothing in other slots."""
    assert isinstance(state.values, RowsOfBlock)
    graph = state.values.block.pool.graph
    keys, values = (oldest_first(graph, state, each) for each in graph.states[:2])
    assert np.array_equal(keys, np.swapaxes(values, 1, 2))
    (length,) = graph.caches[0].valid(state.lengths["past"][row : row + 1])
    assert not keys[row, length:].any()
    return [float(each) for each in keys[row, :length, 0]]


def test_states_are_written_in_place_where_calls_give_new_frames(kind: StateKind) -> None:
    assert is_in_place(in_place_graph(kind=kind))
    assert not is_in_place(streaming_graph())


def test_a_stream_goes_on_in_the_memory_that_it_has(runner: GraphRunner, summing: Summing) -> None:
    states = [runner.initial_state(1)]
    for number in (1.0, 2.0, 3.0):
        (y,), states = stepped(runner, states, [feed(runner, number)], 1)
    assert y == said(3, [1, 2])
    assert held(states[0]) == [1, 2, 3]
    assert len(set(summing.read)) == 1  # nothing was copied


def test_chunks_leave_the_frames_that_they_have_and_nothing_of_their_padding(runner: GraphRunner) -> None:
    states = [runner.initial_state(1)]
    for number, frames in ((1.0, 3), (2.0, 1), (3.0, 2)):
        _, states = stepped(runner, states, [feed(runner, number, frames)], 2)
    assert held(states[0]) == [1, 1, 1, 2, 3, 3]


def test_a_stream_of_several_rows_adds_to_each(runner: GraphRunner) -> None:
    states = [runner.initial_state(2), runner.initial_state(1)]
    for number in (1.0, 2.0):
        feeds = [feed(runner, number, rows=2), feed(runner, 5 * number)]
        feeds[0].arrays["x"][1] *= -1
        _, states = stepped(runner, states, feeds, 4)
    assert [held(each, row) for each in states for row in range(each.rows)] == [[1, 2], [-1, -2], [5, 10]]
    assert [each.values["total"].tolist() for each in states] == [[[3], [-3]], [[15]]]


def test_a_state_that_is_kept_can_be_gone_on_from_twice(runner: GraphRunner) -> None:
    _, (first,) = stepped(runner, [runner.initial_state(1)], [feed(runner, 1)], 1)
    _, (long,) = stepped(runner, [first], [feed(runner, 2, 4)], 1)
    (y,), (other,) = stepped(runner, [first], [feed(runner, 5)], 1)
    assert (y, held(long), held(other), held(first)) == (said(5, [1]), [1, 2, 2, 2, 2], [1, 5], [1])
    (y,), (later,) = stepped(runner, [other], [feed(runner, 7)], 1)
    assert (y, held(long), held(other), held(later)) == (said(7, [1, 5]), [1, 2, 2, 2, 2], [1, 5], [1, 5, 7])
    _, (again,) = stepped(runner, [copy_of_state(first)], [feed(runner, 6)], 1)
    assert (held(again), held(other), held(first)) == ([1, 6], [1, 5], [1])


def test_a_run_reads_what_it_began_with_whatever_others_do_meanwhile(runner: GraphRunner, summing: Summing) -> None:
    _, (state,) = stepped(runner, [runner.initial_state(1)], [feed(runner, 1, 4)], 1)
    _, (state,) = stepped(runner, [state], [feed(runner, 2, 4)], 1)
    others: list[StreamState] = []

    def go_on() -> None:
        summing.meanwhile = lambda: None
        others.append(state)
        for number in range(4):  # from the state that the run began with, to the end of its cache
            _, (others[0],) = stepped(runner, [others[0]], [feed(runner, 10 + number)], 1)

    summing.meanwhile = go_on
    (y,), (after,) = stepped(runner, [state], [feed(runner, 5)], 1)
    frames = [1.0] * 4 + [2.0] * 4
    assert y == said(5, frames)
    assert (held(state), held(after), held(others[0])) == (frames, [*frames, 5], [*frames, 10, 11, 12, 13])
    (y,), (last,) = stepped(runner, [after], [feed(runner, 6)], 1)
    assert (y, held(last), held(others[0])) == (said(6, [*frames, 5]), [*frames, 5, 6], [*frames, 10, 11, 12, 13])


def test_an_array_that_was_taken_out_stays_what_it_was(runner: GraphRunner) -> None:
    _, states = stepped(runner, [runner.initial_state(1)], [feed(runner, 1)], 1)
    keys = states[0].values["keys"]
    before = keys.copy()
    for number in range(3):
        _, states = stepped(runner, states, [feed(runner, number)], 1)
    assert np.array_equal(keys, before)


def test_a_stream_that_waits_holds_little_of_what_a_run_gave_to_others(runner: GraphRunner) -> None:
    states = [runner.initial_state(1) for _ in range(4)]
    _, states = stepped(runner, states, [feed(runner, each, 4) for each in range(4)], 4)
    for state in states:
        assert isinstance(state.values, HeldRows) and state.values.added is not None
        kept = {
            id(array.base if array.base is not None else array): array for array in state.values.added.outputs.values()
        }
        assert sum(array.nbytes for array in kept.values()) <= state.values.writer.row_bytes
    assert [held(each) for each in states] == [[each] * 4 for each in range(4)]


def test_a_run_that_fails_leaves_every_state_as_it_was(runner: GraphRunner, summing: Summing) -> None:
    _, states = stepped(
        runner, [runner.initial_state(1), runner.initial_state(1)], [feed(runner, 1), feed(runner, 2)], 2
    )
    summing.fails = True
    with pytest.raises(RuntimeError):
        stepped(runner, states, [feed(runner, 8), feed(runner, 9)], 2)
    summing.fails = False
    assert [held(each) for each in states] == [[1], [2]]
    _, states = stepped(runner, states, [feed(runner, 3), feed(runner, 4)], 2)
    assert [held(each) for each in states] == [[1, 3], [2, 4]]


def test_a_stream_that_is_full_is_refused_and_stays_or_forgets_the_oldest(runner: GraphRunner) -> None:
    states = [runner.initial_state(1)]
    for number in range(SLOTS // 4):
        _, states = stepped(runner, states, [feed(runner, number, 4)], 1)
    frames = [0.0] * 4 + [1.0] * 4 + [2.0] * 4
    assert held(states[0]) == frames
    if runner.graph.caches[0].is_whole:
        with pytest.raises(BadInput, match=f"at most {SLOTS} frames along 'past' in all of its calls, got {SLOTS + 1}"):
            stepped(runner, states, [feed(runner, 1)], 1)
        assert held(states[0]) == frames
        return
    for count in (1, 3, 4, 2, 4, 4, 1, 1, 4):
        (y,), states = stepped(runner, states, [feed(runner, 3 + count, count)], 1)
        assert y == said(3 + count, frames)
        frames += [3.0 + count] * count
        assert held(states[0]) == frames[-SLOTS:]


def test_streams_that_fill_a_bucket_come_to_lie_together_and_stay(runner: GraphRunner, summing: Summing) -> None:
    states = [runner.initial_state(1) for _ in range(4)]
    for number in range(3):
        _, states = stepped(runner, states, [feed(runner, 10 * row + number) for row in range(4)], 4)
    assert [held(each) for each in states] == [[10 * row, 10 * row + 1, 10 * row + 2] for row in range(4)]
    assert len(set(summing.read)) == 1
    blocks = {id(each.values.block) for each in states if isinstance(each.values, RowsOfBlock)}
    assert len(blocks) == 1
    _, (alone,) = stepped(runner, [states.pop(0)], [feed(runner, 7)], 1)  # where it lies, beside the others
    assert summing.read[-1] == summing.read[0]
    _, states = stepped(runner, [alone, *states], [feed(runner, 8) for _ in range(4)], 4)
    assert summing.read[-1] == summing.read[0]
    assert [held(each) for each in states] == [
        [0, 1, 2, 7, 8],
        *([10 * r, 10 * r + 1, 10 * r + 2, 8] for r in (1, 2, 3)),
    ]


def test_streams_that_leave_rows_free_lie_together_too_in_whatever_order_they_come(
    runner: GraphRunner, summing: Summing
) -> None:
    states = dict(enumerate(runner.initial_state(1) for _ in range(3)))
    for number, order in enumerate(([0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 2, 1])):
        feeds = [feed(runner, 10 * stream + number) for stream in order]
        got, after = stepped(runner, [states[stream] for stream in order], feeds, 4)
        assert got == [said(10 * s + number, [10.0 * s + before for before in range(number)]) for s in order]
        states |= dict(zip(order, after, strict=True))
    assert len(set(summing.read)) == 1
    assert [held(states[stream]) for stream in range(3)] == [[10 * s + n for n in range(4)] for s in range(3)]
    feeds = [feed(runner, 7), feed(runner, 7)]
    _, (states[0], states[1]) = stepped(runner, [states[0], states[1]], feeds, 2)  # one pauses
    _, after = stepped(runner, [states[stream] for stream in range(3)], [feed(runner, 8)] * 3, 4)
    assert [held(state)[4:] for state in after] == [[7, 8], [7, 8], [8]]


def test_a_free_row_is_not_new_where_the_streams_are_not(runner: GraphRunner, summing: Summing) -> None:
    """What calls return whole may say that a stream is new, and a graph compute more for it."""
    states = [runner.initial_state(1) for _ in range(3)]
    for number in (1.0, 2.0, 3.0):
        _, states = stepped(runner, states, [feed(runner, number)] * 3, 4)
    assert summing.totals == [[0, 0, 0, 0], [1, 1, 1, 1], [3, 3, 3, 1]]
    _, states = stepped(runner, [*states[:2], runner.initial_state(1)], [feed(runner, 4)] * 3, 4)  # one joins
    assert summing.totals[-1] == [6, 6, 0, 6]
    assert [held(state) for state in states] == [[1, 2, 3, 4], [1, 2, 3, 4], [4]]


def test_a_stream_that_would_hold_most_of_a_block_for_nothing_does_not_lie_in_it(
    summing: Summing, kind: StateKind
) -> None:
    runner = GraphRunner("g", in_place_graph((8,), kind=kind), summing, check_finite=True)
    states = [runner.initial_state(1)]
    for number in (1.0, 2.0):
        _, states = stepped(runner, states, [feed(runner, number)], 8)
    assert isinstance(states[0].values, HeldRows)
    assert (held(states[0]), states[0].values.block.rows) == ([1, 2], 1)


@pytest.mark.parametrize(("least", "rows"), [(blocks.LEAST_USED, 4), (1, 1)])
def test_those_who_are_left_in_a_block_get_rows_of_their_own_if_it_is_too_large(
    runner: GraphRunner, monkeypatch: pytest.MonkeyPatch, least: int, rows: int
) -> None:
    monkeypatch.setattr(blocks, "LEAST_USED", least)
    states = [runner.initial_state(1) for _ in range(4)]
    _, states = stepped(runner, states, [feed(runner, row) for row in range(4)], 4)
    _, pair = stepped(runner, states[:2], [feed(runner, 5), feed(runner, 6)], 2)
    assert [held(each) for each in (*pair, *states[2:])] == [[0, 5], [1, 6], [2], [3]]
    for each in states[2:]:
        assert isinstance(each.values, RowsOfBlock)
        assert each.values.block.rows == rows
    _, rest = stepped(runner, states[2:], [feed(runner, 7), feed(runner, 8)], 2)
    assert [held(each) for each in rest] == [[2, 7], [3, 8]]


@pytest.mark.parametrize("least", [blocks.LEAST_USED, 1])
def test_random_lives_hold_what_was_fed(runner: GraphRunner, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    monkeypatch.setattr(blocks, "LEAST_USED", least)
    random = np.random.default_rng(0)
    ends = runner.graph.caches[0].is_whole
    states: list[StreamState] = [runner.initial_state(1) for _ in range(5)]
    truth: list[list[float]] = [[] for _ in range(5)]
    kept: list[tuple[StreamState, list[float]]] = [(runner.initial_state(1), []) for _ in states]
    for turn in range(200):
        together = random.permutation(5)[: random.integers(1, 5)]
        for who in together:
            if random.random() < 0.1 or (ends and len(truth[who]) + 4 > SLOTS):  # back to a state that was kept
                states[who], truth[who] = kept[who][0], list(kept[who][1])
            if random.random() < 0.05:
                states[who] = copy_of_state(states[who])
        frames = [int(random.integers(1, 5)) for _ in together]
        feeds = [feed(runner, turn, count) for count in frames]
        rows = next(size for size in (1, 2, 4) if size >= len(together))
        expected = [said(turn, truth[who]) for who in together]
        got, after = stepped(runner, [states[who] for who in together], feeds, rows)
        assert got == expected
        for who, state, count in zip(together, after, frames, strict=True):
            if random.random() < 0.1:
                continue  # the run is cancelled
            states[who] = state
            truth[who] += [turn] * count
            if random.random() < 0.2 and not (ends and len(truth[who]) + 4 > SLOTS):
                kept[who] = (state, list(truth[who]))
        for state, frames_then in [*zip(states, truth, strict=True), *kept]:
            if isinstance(state.values, HeldRows):
                assert held(state) == frames_then[-SLOTS:]


def test_states_that_were_dropped_are_held_by_nobody(runner: GraphRunner) -> None:
    _, (kept,) = stepped(runner, [runner.initial_state(1)], [feed(runner, 1)], 1)
    for number in range(20):  # each run but the last is cancelled
        _, (after,) = stepped(runner, [kept], [feed(runner, number)], 1)
    assert isinstance(kept.values, HeldRows)
    assert len(kept.values.holders) == 2
    del after
    assert len(kept.values.holders) == 1


def test_a_state_that_comes_to_lie_elsewhere_while_its_stream_goes_on_keeps_its_frames(
    runner: GraphRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (state,) = stepped(runner, [runner.initial_state(1)], [feed(runner, 1)], 1)
    rest = HeldRows.rest

    def rest_late(self: HeldRows) -> bool:
        own = self.own()  # by another thread, in which a stream leaves the block
        is_written = rest(self)
        state.values = own
        return is_written

    monkeypatch.setattr(HeldRows, "rest", rest_late)
    (y,), (after,) = stepped(runner, [state], [feed(runner, 2)], 1)
    assert (y, held(after), held(state)) == (said(2, [1]), [1, 2], [1])


def test_those_who_stay_in_a_block_when_one_went_on_beside_a_new_stream_get_rows_of_their_own(
    summing: Summing, kind: StateKind
) -> None:
    runner = GraphRunner("g", in_place_graph((1, 4, 8), kind=kind), summing, check_finite=True)
    states = [runner.initial_state(1) for _ in range(8)]
    _, states = stepped(runner, states, [feed(runner, row) for row in range(8)], 8)
    _, (states[0], _) = stepped(runner, [states[0], runner.initial_state(1)], [feed(runner, 5)] * 2, 4)
    while len(states) > 1:
        blocks.leave([states.pop(0)])  # its stream is closed
    (last,) = states
    assert isinstance(last.values, HeldRows)
    assert (held(last), last.values.block.rows) == ([7], 1)


def test_threads_that_go_on_from_one_state_do_not_meet(kind: StateKind) -> None:
    runner = GraphRunner("g", in_place_graph(kind=kind), Summing(), check_finite=True)
    _, (begin,) = stepped(runner, [runner.initial_state(1)], [feed(runner, 1, 4)], 1)
    wrong: list[object] = []

    def live(number: int) -> None:
        random = np.random.default_rng(number)
        for turn in range(15):
            state, frames = begin, [1.0] * 4
            for _ in range(3 if runner.graph.caches[0].is_whole else 8):
                count = int(random.integers(1, 3))
                (y,), (state,) = stepped(runner, [state], [feed(runner, 10 * number + turn, count)], 1)
                if y != said(10 * number + turn, frames):
                    wrong.append((y, frames))
                frames += [10.0 * number + turn] * count
                if held(state) != frames[-SLOTS:]:
                    wrong.append((held(state), frames))

    threads = [threading.Thread(target=live, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and held(begin) == [1.0] * 4
