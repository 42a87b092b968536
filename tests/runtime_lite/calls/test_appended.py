"""Frames that calls append lie behind the others, whoever runs together and whichever state is gone on from."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from runtime_lite.calls import blocks
from runtime_lite.calls.appended import is_appended
from runtime_lite.calls.blocks import RowsOfBlock
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, copy_of_state
from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import Array
from tests.runtime_lite.appending import SLOTS, WIDTH, appending_graph
from tests.runtime_lite.bundles import streaming_graph


class Summing:
    """Runs the graph in NumPy; what lies behind the end of a row is NaN, as if it could not be seen."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.fails = False

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        assert inputs["x"].shape == (sizes["batch"], sizes["time"], WIDTH)
        self.read.append(inputs["keys"].ctypes.data)
        for row, (length, new) in enumerate(zip(inputs["past_length"], inputs["time_length"], strict=True)):
            for name, at in (("keys", 0), ("values", 1)):  # free slots hold zeros
                assert not np.moveaxis(inputs[name][row], at, 0)[length:].any()
            x = inputs["x"][row]
            outputs["y"][row] = x + inputs["keys"][row].sum(0) + 2 * inputs["values"][row].sum(1)
            outputs["new_keys"][row], outputs["new_values"][row] = x, x.T
            outputs["new_keys"][row, new:], outputs["new_values"][row, :, new:] = np.nan, np.nan
        if self.fails:
            raise RuntimeError("the backend fails")

    def close(self) -> None:
        """Hold nothing."""


@pytest.fixture
def summing() -> Summing:
    return Summing()


@pytest.fixture
def runner(summing: Summing) -> GraphRunner:
    return GraphRunner("g", appending_graph(), summing, check_finite=True)


def feed(runner: GraphRunner, number: float, frames: int = 1, rows: int = 1) -> Feed:
    return runner.check("test", {"x": np.full((rows, frames, WIDTH), number, np.float32)})


def stepped(
    runner: GraphRunner, states: Sequence[StreamState], feeds: Sequence[Feed], rows: int
) -> tuple[list[float], list[StreamState]]:
    """What the last frame of each stream becomes, and the states behind."""
    time = 1 if all(each.sizes["time"] == 1 for each in feeds) else 4
    found = runner.step_streams(feeds, states, {"batch": rows, "time": time})
    return [float(outputs["y"][0, -1, 0]) for outputs, _ in found], [state for _, state in found]


def held(state: StreamState) -> list[float]:
    """The frames that a state holds, and zeros behind them."""
    keys, values = state.values["keys"], state.values["values"]
    assert np.array_equal(keys, np.swapaxes(values, 1, 2))
    (length,) = state.lengths["past"]
    assert not keys[0, length:].any()
    return [float(each) for each in keys[0, :length, 0]]


def before(state: StreamState) -> StreamState:
    """A state without what later ones wrote behind it."""
    found, (length,) = copy_of_state(state), state.lengths["past"]
    for name, at in (("keys", 1), ("values", 2)):
        np.moveaxis(found.values[name], at, 0)[length:] = 0
    return found


def test_a_graph_is_appended_to_where_its_cache_says_so() -> None:
    assert is_appended(appending_graph())
    assert not is_appended(streaming_graph())


def test_a_stream_appends_in_the_memory_that_it_has(runner: GraphRunner, summing: Summing) -> None:
    states = [runner.initial_state(1)]
    for number in (1.0, 2.0, 3.0):
        (y,), states = stepped(runner, states, [feed(runner, number)], 1)
    assert y == 3 + 3 * (1 + 2)
    assert held(states[0]) == [1, 2, 3]
    assert len(set(summing.read)) == 1  # nothing was copied


def test_chunks_leave_the_frames_that_they_have_and_nothing_of_their_padding(runner: GraphRunner) -> None:
    states = [runner.initial_state(1)]
    for number, frames in ((1.0, 3), (2.0, 1), (3.0, 2)):
        _, states = stepped(runner, states, [feed(runner, number, frames)], 2)
    assert held(states[0]) == [1, 1, 1, 2, 3, 3]


def test_a_stream_of_several_rows_appends_to_each(runner: GraphRunner) -> None:
    states = [runner.initial_state(2), runner.initial_state(1)]
    for number in (1.0, 2.0):
        feeds = [feed(runner, number, rows=2), feed(runner, 5 * number)]
        feeds[0].arrays["x"][1] *= -1
        _, states = stepped(runner, states, feeds, 4)
    frames = [each.values["keys"][row, :2, 0].tolist() for each in states for row in range(each.rows)]
    assert frames == [[1, 2], [-1, -2], [5, 10]]


def test_a_state_that_is_kept_can_be_gone_on_from_twice(runner: GraphRunner) -> None:
    _, (first,) = stepped(runner, [runner.initial_state(1)], [feed(runner, 1)], 1)
    _, (long,) = stepped(runner, [first], [feed(runner, 2, 4)], 1)
    (y,), (other,) = stepped(runner, [first], [feed(runner, 5)], 1)
    assert (y, held(long), held(other), held(before(first))) == (5 + 3, [1, 2, 2, 2, 2], [1, 5], [1])
    _, (again,) = stepped(runner, [copy_of_state(first)], [feed(runner, 6)], 1)
    assert (held(again), held(other)) == ([1, 6], [1, 5])


def test_a_run_that_fails_leaves_every_state_as_it_was(runner: GraphRunner, summing: Summing) -> None:
    _, states = stepped(
        runner, [runner.initial_state(1), runner.initial_state(1)], [feed(runner, 1), feed(runner, 2)], 2
    )
    summing.fails = True
    with pytest.raises(RuntimeError):
        stepped(runner, states, [feed(runner, 8), feed(runner, 9)], 2)
    summing.fails = False
    _, states = stepped(runner, states, [feed(runner, 3), feed(runner, 4)], 2)
    assert [held(each) for each in states] == [[1, 3], [2, 4]]


def test_a_stream_that_is_full_is_refused_and_stays(runner: GraphRunner) -> None:
    states = [runner.initial_state(1)]
    for number in range(SLOTS // 4):
        _, states = stepped(runner, states, [feed(runner, number, 4)], 1)
    with pytest.raises(BadInput, match=f"at most {SLOTS} frames along 'past' in all of its calls, got {SLOTS + 1}"):
        stepped(runner, states, [feed(runner, 1)], 1)
    assert held(states[0]) == [0] * 4 + [1] * 4 + [2] * 4


def test_streams_that_fill_a_bucket_come_to_lie_together_and_stay(runner: GraphRunner, summing: Summing) -> None:
    states = [runner.initial_state(1) for _ in range(4)]
    for number in range(3):
        _, states = stepped(runner, states, [feed(runner, 10 * row + number) for row in range(4)], 4)
    assert [held(each) for each in states] == [[10 * row, 10 * row + 1, 10 * row + 2] for row in range(4)]
    assert len(set(summing.read)) == 1
    blocks = {id(each.values.block) for each in states if isinstance(each.values, RowsOfBlock)}
    assert len(blocks) == 1
    _, (alone,) = stepped(runner, states[:1], [feed(runner, 7)], 1)  # where it lies, beside the others
    assert summing.read[-1] == summing.read[0]
    _, states = stepped(runner, [alone, *states[1:]], [feed(runner, 8) for _ in range(4)], 4)
    assert summing.read[-1] == summing.read[0]
    assert [held(each) for each in states] == [
        [0, 1, 2, 7, 8],
        *([10 * r, 10 * r + 1, 10 * r + 2, 8] for r in (1, 2, 3)),
    ]


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
    states: list[StreamState] = [runner.initial_state(1) for _ in range(5)]
    truth: list[list[float]] = [[] for _ in range(5)]
    kept = [(state, list(frames)) for state, frames in zip(states, truth, strict=True)]
    for turn in range(300):
        together = random.permutation(5)[: random.integers(1, 5)]
        for who in together:
            if random.random() < 0.1 or len(truth[who]) + 4 > SLOTS:  # back to a state that was kept
                states[who], truth[who] = kept[who][0], list(kept[who][1])
        frames = [int(random.integers(1, 5)) for _ in together]
        feeds = [feed(runner, turn, count) for count in frames]
        rows = next(size for size in (1, 2, 4) if size >= len(together))
        expected = [turn + 3 * sum(truth[who]) for who in together]
        got, after = stepped(runner, [states[who] for who in together], feeds, rows)
        assert got == expected
        for who, state, count in zip(together, after, frames, strict=True):
            states[who] = state
            truth[who] += [turn] * count
            if random.random() < 0.2 and len(truth[who]) + 4 <= SLOTS:
                kept[who] = (state, list(truth[who]))
        assert [held(state) for state in states] == truth
        for state, frames_kept in kept:
            assert held(before(state)) == frames_kept
