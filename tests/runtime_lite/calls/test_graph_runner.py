"""Rows of any lengths give the same answer alone, padded, beside any neighbours, and whatever lies in their padding."""

import copy
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import Runtime
from runtime_lite.calls import blocks
from runtime_lite.calls.blocks import RowsOfBlock
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import copy_of_state, initial_state
from runtime_lite.executors.executor import Executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    BUCKETS,
    TIMES,
    plain_graph,
    ragged_graph,
    random_chunks,
    random_row,
    truth_of_ragged,
    write_ragged_bundle,
    write_streaming_bundle,
)

ATOL = 2e-6
LENGTHS = (3, 4, 5, 6, 7, 8)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphRunner]:
    with Runtime() as runtime:
        yield runtime.load(write_ragged_bundle(tmp_path_factory.mktemp("ragged"))).runner()


def row(runner: GraphRunner, length: int, seed: int = 0) -> Feed:
    return runner.check("test", random_row(length, seed))


def run(runner: GraphRunner, feeds: list[Feed], batch: int, time: int, fill: float = 0.0) -> list[dict[str, Array]]:
    states = [initial_state(runner.graph, 1) for _ in feeds]
    steps = runner.step_streams(feeds, states, {"batch": batch, "time": time}, fill)
    return [outputs for outputs, _ in steps]


def holds_truth(outputs: dict[str, Array], length: int, seed: int = 0) -> None:
    feed = random_row(length, seed)
    for name, expected in zip(("y", "mean"), truth_of_ragged(feed["x"], feed["tokens"]), strict=True):
        assert outputs[name].shape == expected.shape
        np.testing.assert_allclose(outputs[name], expected, rtol=0.0, atol=ATOL)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("batch", BUCKETS)
@pytest.mark.parametrize("time", TIMES)
def test_a_row_equals_the_truth_in_every_bucket_that_holds_it(
    runner: GraphRunner, length: int, batch: int, time: int
) -> None:
    if length <= time:
        holds_truth(run(runner, [row(runner, length)], batch, time)[0], length)


@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_what_lies_in_the_padding_changes_no_bit_of_a_valid_output(runner: GraphRunner, fill: float) -> None:
    feeds = [row(runner, length) for length in (5, 3, 7)]
    clean, dirty = run(runner, feeds, 4, 8), run(runner, feeds, 4, 8, fill)
    for expected, got in zip(clean, dirty, strict=True):
        for name in ("y", "mean"):
            np.testing.assert_array_equal(got[name], expected[name])


def test_ragged_rows_answer_in_their_order_each_with_its_length(runner: GraphRunner) -> None:
    lengths = [7, 3, 8, 4, 4, 6, 5, 3, 8]
    feeds = [row(runner, length, seed) for seed, length in enumerate(lengths)]
    for seed, (length, outputs) in enumerate(zip(lengths, runner.run(feeds), strict=True)):
        holds_truth(outputs, length, seed)
    assert runner.run([]) == []


def test_a_feed_is_split_at_the_largest_bucket(runner: GraphRunner) -> None:
    rows = {name: np.repeat(array, 9, 0) for name, array in random_row(5).items()}
    parts = runner.split(runner.check("test", rows))
    assert [(part.rows, part.sizes["time"], part.arrays["x"].shape) for part in parts] == [
        (4, 5, (4, 5, 2)),
        (4, 5, (4, 5, 2)),
        (1, 5, (1, 5, 2)),
    ]
    feed = row(runner, 5)
    assert runner.split(feed) == [feed]


def with_graph(runner: GraphRunner, graph: Graph) -> GraphRunner:
    return GraphRunner("g", graph, runner.executor, True)


def test_why_rows_of_several_callers_may_not_share_a_run(runner: GraphRunner) -> None:
    assert runner.batching_fault() is None
    graph = ragged_graph()
    unproved = dataclasses.replace(graph, rows_independent=False)
    assert with_graph(runner, unproved).batching_fault() == "one whose rows are not proved independent"
    alone = dataclasses.replace(graph, axes={"time": graph.axes["time"]}, batch_axis=None)
    assert with_graph(runner, alone).batching_fault() == "one without an axis of rows"
    plain = plain_graph()
    inputs = (plain.inputs[0], dataclasses.replace(plain.inputs[1], shape=(1,)))
    shared = with_graph(runner, dataclasses.replace(plain, inputs=inputs))
    assert shared.batching_fault() == "one whose input 'shift' holds for all rows"


def test_rows_lie_where_the_shape_of_an_output_says(runner: GraphRunner) -> None:
    graph = ragged_graph()
    turned = dataclasses.replace(graph.outputs[1], shape=(2, "batch"))
    assert with_graph(runner, dataclasses.replace(graph, outputs=(graph.outputs[0], turned))).batched == {
        "y": 0,
        "mean": 1,
    }


class Watched:
    """An executor that notes where the arrays of every run lie, and what the last one was fed.

    `meet` is called inside of a run, `spoil` behind it.
    """

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.runs: list[dict[str, int]] = []
        self.fed: dict[str, Array] = {}
        self.meet: Callable[[], object] = lambda: None
        self.spoil: Callable[[Mapping[str, Array]], object] = lambda outputs: None

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self.runs.append({name: array.ctypes.data for name, array in {**inputs, **outputs}.items()})
        self.fed = {name: array.copy() for name, array in inputs.items()}
        self.meet()
        self._inner.run(sizes, inputs, outputs)
        self.spoil(outputs)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[GraphRunner]:
    with Runtime() as runtime:
        plain = runtime.load(write_streaming_bundle(tmp_path / "b")).runner()
        yield GraphRunner("streaming", plain.graph, Watched(plain.executor), check_finite=False)


def watch(runner: GraphRunner) -> Watched:
    assert isinstance(runner.executor, Watched)
    return runner.executor


def chunk(runner: GraphRunner, seed: int, rows: int = 1) -> Feed:
    return runner.check("test", {"x": random_chunks(1, rows, seed)[0]})


@pytest.mark.parametrize("rows", [(1,), (1, 1, 1, 1), (2, 2), (4,)])
def test_no_byte_of_a_state_moves_while_the_streams_of_a_full_bucket_go_on(
    watched: GraphRunner, rows: tuple[int, ...]
) -> None:
    states = [initial_state(watched.graph, each) for each in rows]
    for call in range(6):
        feeds = [chunk(watched, 10 * call + at, each) for at, each in enumerate(rows)]
        states = [state for _, state in watched.step_streams(feeds, states, {"batch": sum(rows)})]
    runs = watch(watched).runs
    for before, after in itertools.pairwise(runs):
        assert after["keys"] == before["next_keys"]
    assert len({run["next_keys"] for run in runs}) == 2, "two blocks, in turns"


def test_a_steady_stream_gets_new_arrays_for_its_answers_alone(watched: GraphRunner) -> None:
    feeds, states = [chunk(watched, seed) for seed in range(3)], [initial_state(watched.graph, 1) for _ in range(3)]
    for _ in range(8):
        states = [state for _, state in watched.step_streams(feeds, states, {"batch": 4})]
    for name, places in {"x": 1, "keys": 2, "y": 1, "next_keys": 2}.items():
        assert len({run[name] for run in watch(watched).runs}) == places


def test_what_was_handed_out_is_never_written_again(watched: GraphRunner) -> None:
    held = []
    states = [initial_state(watched.graph, 1) for _ in range(4)]
    for call in range(6):
        feeds = [chunk(watched, 4 * call + at) for at in range(4)]
        for count, sizes in ((4, 4), (3, 4), (1, 1)):
            steps = watched.step_streams(feeds[:count], states[:count], {"batch": sizes})
            held += [(state, copy_of_state(state), outputs, copy.deepcopy(outputs)) for outputs, state in steps]
        states = [state for state, *_ in held[-8:-4]]
    for state, state_then, outputs, outputs_then in held:
        np.testing.assert_array_equal(outputs["y"], outputs_then["y"])
        np.testing.assert_array_equal(state.values["keys"], state_then.values["keys"])
        np.testing.assert_array_equal(state.lengths["cache"], state_then.lengths["cache"])


def test_what_the_run_before_left_in_the_buffers_reaches_nobody(runner: GraphRunner) -> None:
    loose, fresh = (GraphRunner("g", runner.graph, runner.executor, check_finite=False) for _ in range(2))
    poison = loose.check("test", {**random_row(8), "x": np.full((1, 8, 2), np.nan, np.float32)})
    lengths = (5, 3, 7)
    run(loose, [poison] * 4, 4, 8)
    got, expected = (run(each, [row(each, length) for length in lengths], 4, 8) for each in (loose, fresh))
    for ours, theirs in zip(got, expected, strict=True):
        for name in ("y", "mean"):
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_free_rows_hold_initial_states_after_any_run(watched: GraphRunner) -> None:
    states = [initial_state(watched.graph, 1) for _ in range(4)]
    feeds = [chunk(watched, at) for at in range(4)]
    for count in (4, 2, 4, 3):
        steps = watched.step_streams(feeds[:count], states[:count], {"batch": 4})
        states[:count] = [state for _, state in steps]
        fed = watch(watched).fed
        assert not any(fed[name][count:].any() for name in ("x", "keys"))
        assert set(fed["real_length"][count:].tolist()) <= {fed["real_length"][:count].min()}


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_run_that_fails_after_it_wrote_leaves_the_states_and_the_next_run_right(
    watched: GraphRunner, count: int
) -> None:
    sizes = {"batch": 1 if count == 1 else 4}
    feeds = [chunk(watched, at) for at in range(count)]
    states = [initial_state(watched.graph, 1) for _ in range(count)]
    for _ in range(2):
        states = [state for _, state in watched.step_streams(feeds, states, sizes)]
    before = [copy_of_state(state) for state in states]
    wanted = watched.step_streams(feeds, before, sizes)

    def spoil(outputs: Mapping[str, Array]) -> None:
        for array in outputs.values():
            array.fill(np.nan)
        raise KeyboardInterrupt

    for _ in range(3):
        watch(watched).spoil = spoil
        with pytest.raises(KeyboardInterrupt):
            watched.step_streams(feeds, states, sizes)
        watch(watched).spoil = lambda outputs: None
        for got, expected in zip(watched.step_streams(feeds, states, sizes), wanted, strict=True):
            np.testing.assert_array_equal(got[0]["y"], expected[0]["y"])
            np.testing.assert_array_equal(got[1].values["keys"], expected[1].values["keys"])


def test_runs_that_fail_one_after_the_other_let_no_more_memory_be_kept(watched: GraphRunner) -> None:
    def fail(outputs: Mapping[str, Array]) -> None:
        raise MemoryError

    watched.step_streams([chunk(watched, 0)], [initial_state(watched.graph, 1)], {"batch": 1})
    watch(watched).spoil = fail
    for _ in range(5):
        with pytest.raises(MemoryError):
            watched.step_streams([chunk(watched, 0)], [initial_state(watched.graph, 1)], {"batch": 1})
    assert watched._blocks._runs == 1


def test_runs_beside_each_other_share_no_memory_but_what_they_read(watched: GraphRunner) -> None:
    watch(watched).meet = threading.Barrier(3, timeout=PATIENCE_S).wait
    answers: dict[int, Any] = {}

    def work(number: int) -> None:
        states = [initial_state(watched.graph, 1) for _ in range(3)]
        for call in range(4):
            feeds = [chunk(watched, 100 * number + 10 * call + at) for at in range(3)]
            steps = watched.step_streams(feeds, states, {"batch": 4})
            states = [state for _, state in steps]
        answers[number] = [(outputs["y"], state.values["keys"]) for outputs, state in steps]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    runs = watch(watched).runs
    for beside in [runs[at : at + 3] for at in range(0, len(runs), 3)]:
        places = [place for run in beside for place in run.values()]
        assert len(set(places)) == len(places)
    watch(watched).meet = lambda: None
    together = dict(answers)
    for number in range(3):
        work(number)
        for ours, theirs in zip(together[number], answers[number], strict=True):
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1])


@pytest.mark.parametrize(("least", "rows"), [(blocks.LEAST_USED, 4), (1, 1)])
def test_who_stays_behind_when_one_of_a_full_bucket_goes_on_alone_holds_its_own_rows_if_that_is_too_large(
    watched: GraphRunner, monkeypatch: pytest.MonkeyPatch, least: int, rows: int
) -> None:
    monkeypatch.setattr(blocks, "LEAST_USED", least)
    states = [initial_state(watched.graph, 1) for _ in range(4)]
    feeds = [chunk(watched, at) for at in range(4)]
    states = [state for _, state in watched.step_streams(feeds, states, {"batch": 4})]
    before = [copy_of_state(state).values["keys"] for state in states]
    watched.step_streams(feeds[:1], states[:1], {"batch": 1})
    for state, keys in zip(states[1:], before[1:], strict=True):
        assert isinstance(state.values, RowsOfBlock) and state.values.block.rows == rows
        np.testing.assert_array_equal(state.values["keys"], keys)


def test_a_trimmed_runner_holds_no_memory_for_the_next_run_and_goes_on(watched: GraphRunner) -> None:
    feeds, states = [chunk(watched, seed) for seed in range(3)], [initial_state(watched.graph, 1) for _ in range(3)]
    for trimmed in (False, True, True):
        if trimmed:
            watched.trim()
            assert not any(bucket._free or bucket.made for bucket in watched._buckets.values())
            assert not any(watched._blocks._spare.values())
        before = [copy_of_state(state) for state in states]
        steps = watched.step_streams(feeds, states, {"batch": 4})
        alone = watched.step_streams(feeds[:1], before[:1], {"batch": 1})
        np.testing.assert_allclose(steps[0][0]["y"], alone[0][0]["y"], rtol=0.0, atol=ATOL)  # of another bucket
        states = [state for _, state in steps]
    states.clear()
    assert any(watched._blocks._spare.values())


def test_a_closed_runner_holds_no_memory(watched: GraphRunner) -> None:
    feeds, states = [chunk(watched, seed) for seed in range(3)], [initial_state(watched.graph, 1) for _ in range(3)]
    for _ in range(3):
        states = [state for _, state in watched.step_streams(feeds, states, {"batch": 4})]
    watched.close()
    states.clear()
    assert not watched._buckets and not any(watched._blocks._spare.values())
