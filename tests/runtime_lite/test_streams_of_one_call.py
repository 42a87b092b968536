"""Rows of one call are different streams: of any age, length and position each is answered as it is alone.

Numbers are such that every sum and quotient is exact, so that answers must agree to the bit, whichever kernel a bucket
gets.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BadInput, Runtime
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, initial_state
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import Artifact, Axis, Graph, State, Tensor
from tests.runtime_lite.bundles import BUCKETS, STEP, WIDTH, onnx_bytes, write_bundle, write_streaming_bundle

TIMES = (2, 5)

# every frame gets the sum of all frames before this call and the position of the call
COUNTING_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
counting (float[{n},{t},2] x, float[2,{n}] total, int64[{n}] position)
    => (float[{n},{t},2] y, float[2,{n}] next_total, int64[{n}] next_position)
<float[2,2] weight = {{0, 0, 0, 0}}, int64[1] minus_one = {{-1}}, int64[1] one = {{1}}, int64[1] frames = {{{t}}}>
{{
    sum = ReduceSum<keepdims = 0>(x, one)
    turned = Transpose<perm = [1, 0]>(sum)
    next_total = Add(total, turned)
    back = Transpose<perm = [1, 0]>(total)
    before = Unsqueeze(back, one)
    since = Add(x, before)
    number = Cast<to = 1>(position)
    number_wide = Unsqueeze(number, minus_one)
    number_column = Unsqueeze(number_wide, minus_one)
    y = Add(since, number_column)
    next_position = Add(position, frames)
}}
"""


def counting_graph() -> Graph:
    """Streams with positions, in chunks of several sizes; the rows lie on the second axis of one state."""
    return Graph(
        target="onnx_static",
        opset=20,
        ir_version=10,
        inputs=(
            Tensor("x", ("rows", "time", WIDTH), "float32", "data"),
            Tensor("total", (WIDTH, "rows"), "float32", "state"),
            Tensor("position", ("rows",), "int64", "state"),
        ),
        outputs=(
            Tensor("y", ("rows", "time", WIDTH), "float32", "data"),
            Tensor("next_total", (WIDTH, "rows"), "float32", "state"),
            Tensor("next_position", ("rows",), "int64", "state"),
        ),
        axes={"rows": Axis(BUCKETS), "time": Axis(TIMES)},
        states=(
            State("total", "total", "next_total", (WIDTH, "rows"), "float32", 0.0, None, None, ()),
            State("position", "position", "next_position", ("rows",), "int64", 7, None, None, ()),
        ),
        caches=(),
        artifacts=tuple(
            Artifact({"rows": n, "time": t}, f"graphs/counting.rows{n}.time{t}.onnx", ("graphs/weights.bin",))
            for n in BUCKETS
            for t in TIMES
        ),
        golden="golden/counting.npz",
        rows_independent=True,
        certificate="certificates/counting.json",
        batch_axis="rows",
    )


def write_counting_bundle(directory: Path) -> Path:
    graph = counting_graph()
    golden = Golden((GoldenStep({"x": exact(1, 2)}, {"y": exact(1, 2) + 7}),), 1e-5)
    files = {graph.golden: npz_from_golden(golden), graph.certificate: b"{}\n", "graphs/weights.bin": bytes(16)}
    for item in graph.artifacts:
        n, t = item.sizes["rows"], item.sizes["time"]
        files[item.file] = onnx_bytes(COUNTING_TEXT.format(n=n, t=t))
    return write_bundle(directory, {"counting": graph}, files)


def exact(seed: int, frames: int, rows: int = 1) -> Array:
    """Multiples of 120, small enough that all sums and quotients by 3, 5, 6 and 8 are exact."""
    return 120 * np.random.default_rng(seed).integers(-9, 10, (rows, frames, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphRunner]:
    with Runtime() as runtime:
        yield runtime.load(write_streaming_bundle(tmp_path_factory.mktemp("windowed"))).runner()


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphRunner]:
    with Runtime() as runtime:
        yield runtime.load(write_counting_bundle(tmp_path_factory.mktemp("counting"))).runner()


def aged(runner: GraphRunner, calls: int, seed: int, lengths: Sequence[int] = (STEP,), rows: int = 1) -> StreamState:
    """The state of a stream after some calls, alone."""
    state = initial_state(runner.graph, rows)
    for call in range(calls):
        chunk = exact(seed + call, lengths[call % len(lengths)], rows)
        _, state = runner.step(runner.check("test", {"x": chunk}), state)
    return state


def same(got: tuple[dict[str, Array], StreamState], wanted: tuple[dict[str, Array], StreamState]) -> None:
    for ours, theirs in ((got[0], wanted[0]), (got[1].values, wanted[1].values), (got[1].lengths, wanted[1].lengths)):
        assert ours.keys() == theirs.keys()
        for name, array in theirs.items():
            np.testing.assert_array_equal(ours[name], array, strict=True)


def test_streams_at_call_1_and_call_1000_share_a_run(windowed: GraphRunner) -> None:
    ages = (999, 0, 1)
    feeds = [windowed.check("test", {"x": exact(50 + age, STEP)}) for age in ages]
    alone = [windowed.step(feed, aged(windowed, age, age)) for feed, age in zip(feeds, ages, strict=True)]
    states = [aged(windowed, age, age) for age in ages]
    together = windowed.step_streams(feeds, states, {"batch": 4})
    for got, wanted in zip(together, alone, strict=True):
        same(got, wanted)
    assert [after.lengths["cache"].tolist() for _, after in together] == [[5], [3], [5]]


def test_positions_are_those_of_each_row(counting: GraphRunner) -> None:
    ages = (0, 5, 2)
    feeds = [counting.check("test", {"x": exact(age, 5)}) for age in ages]
    alone = [counting.step(feed, aged(counting, age, age, (2, 5))) for feed, age in zip(feeds, ages, strict=True)]
    states = [aged(counting, age, age, (2, 5)) for age in ages]
    together = counting.step_streams(feeds, states, {"rows": 4, "time": 5})
    for got, wanted in zip(together, alone, strict=True):
        same(got, wanted)
    assert [int(after.values["position"][0]) for _, after in together] == [7 + 5, 7 + 16 + 5, 7 + 7 + 5]


@pytest.mark.parametrize("fill", [np.nan, np.inf, 1e30])
def test_poison_in_free_rows_is_seen_by_no_stream(windowed: GraphRunner, fill: float) -> None:
    feeds = [windowed.check("test", {"x": exact(age, STEP)}) for age in range(3)]
    clean, dirty = (
        windowed.step_streams(feeds, [aged(windowed, age, age) for age in range(3)], {"batch": 4}, each)
        for each in (0.0, fill)
    )
    for got, wanted in zip(dirty, clean, strict=True):
        same(got, wanted)


def test_streams_of_several_rows_move_beside_streams_of_one(counting: GraphRunner) -> None:
    feeds = [counting.check("test", {"x": exact(rows, 2, rows)}) for rows in (1, 2, 1)]
    ages = (3, 1, 0)

    def states() -> list[StreamState]:
        return [aged(counting, age, age, rows=feed.rows, lengths=(2,)) for age, feed in zip(ages, feeds, strict=True)]

    alone = [counting.step(feed, state) for feed, state in zip(feeds, states(), strict=True)]
    for got, wanted in zip(counting.step_streams(feeds, states(), {"rows": 4, "time": 2}), alone, strict=True):
        same(got, wanted)


def test_streams_meet_and_part_in_any_order_for_many_calls(counting: GraphRunner) -> None:
    random = np.random.default_rng(3)
    calls = [[counting.check("test", {"x": exact(9 * n + c, 5)}) for c in range(20)] for n in range(6)]
    wanted = []
    for stream in calls:
        state, answers = initial_state(counting.graph, 1), []
        for feed in stream:
            outputs, state = counting.step(feed, state)
            answers.append(outputs["y"])
        wanted.append(answers)
    states = [initial_state(counting.graph, 1) for _ in calls]
    done = [0] * len(calls)
    while left := [number for number, calls_done in enumerate(done) if calls_done < 20]:
        chosen = random.permutation(left)[: random.integers(1, 5)]
        feeds = [calls[number][done[number]] for number in chosen]
        steps = counting.step_streams(feeds, [states[number] for number in chosen], {"rows": 4, "time": 5})
        for number, (outputs, state) in zip(chosen, steps, strict=True):
            np.testing.assert_array_equal(outputs["y"], wanted[number][done[number]])
            states[number], done[number] = state, done[number] + 1


def test_a_stream_full_of_nan_leaves_its_neighbours_as_they_are(windowed: GraphRunner) -> None:
    loose = GraphRunner("streaming", windowed.graph, windowed.executor, check_finite=False)
    chunk = exact(1, STEP)
    feeds = [loose.check("test", {"x": each}) for each in (chunk, chunk + np.nan, chunk + np.inf)]
    wanted = loose.step(feeds[0], aged(loose, 2, 0))
    spoiled = [dataclasses.replace(aged(loose, 2, 0), values={"keys": np.full((1, 5, 2), np.nan, np.float32)})] * 2
    got = loose.step_streams(feeds, [aged(loose, 2, 0), *spoiled], {"batch": 4})
    same(got[0], wanted)
    assert not np.isfinite(got[1][0]["y"]).all(), "the poison was really there"


def test_every_stream_owns_its_outputs_and_its_state(windowed: GraphRunner) -> None:
    feeds = [windowed.check("test", {"x": exact(seed, STEP)}) for seed in range(3)]
    steps = windowed.step_streams(feeds, [aged(windowed, 1, seed) for seed in range(3)], {"batch": 4})
    arrays = [[*outputs.values(), *state.values.values(), *state.lengths.values()] for outputs, state in steps]
    for ours, theirs in itertools.combinations(itertools.chain(*arrays), 2):
        assert not np.shares_memory(ours, theirs)
    kept = [{name: array.copy() for name, array in outputs.items()} for outputs, _ in steps]
    after = [state for _, state in steps]
    for _ in range(3):
        after = [state for _, state in windowed.step_streams(feeds, after, {"batch": 4})]
    for (outputs, _), before in zip(steps, kept, strict=True):
        for name, array in before.items():
            np.testing.assert_array_equal(outputs[name], array)


def test_a_run_that_fails_leaves_every_stream_as_it_was(windowed: GraphRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [windowed.check("test", {"x": exact(seed, STEP)}) for seed in range(3)]
    wanted = [windowed.step(feed, aged(windowed, 2, seed)) for seed, feed in enumerate(feeds)]
    states = [aged(windowed, 2, seed) for seed in range(3)]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for rows in (1, 3):
        with monkeypatch.context() as patched:
            patched.setattr(OnnxExecutor, "run", interrupt)
            with pytest.raises(KeyboardInterrupt):
                windowed.step_streams(feeds[:rows], states[:rows], {"batch": 1 if rows == 1 else 4})
    for got, expected in zip(windowed.step_streams(feeds, states, {"batch": 4}), wanted, strict=True):
        same(got, expected)


def with_graph(runner: GraphRunner, graph: Graph) -> GraphRunner:
    return GraphRunner("g", graph, runner.executor, True)


def refusal(runner: GraphRunner, rows: Sequence[int], states: Sequence[int], sizes: Mapping[str, int]) -> str:
    feeds = [runner.check("test", {"x": exact(0, 5, each)}) for each in rows]
    carried = [initial_state(runner.graph, each) for each in states]
    with pytest.raises(BadInput) as caught:
        runner.step_streams(feeds, carried, sizes)
    return str(caught.value)


def test_streams_that_may_not_share_a_run_are_refused(counting: GraphRunner) -> None:
    graph = counting.graph
    bucket = {"rows": 4, "time": 5}
    unproved = with_graph(counting, dataclasses.replace(graph, rows_independent=False))
    assert refusal(unproved, [1, 1], [1, 1], bucket) == (
        "g.step_streams: expected a graph that may take rows of several streams, got one whose rows are not proved "
        "independent; run each stream alone"
    )


@pytest.mark.parametrize(
    ("sizes", "fault"),
    [
        ({"rows": 1, "time": 5}, "got 2 rows; choose another bucket"),
        ({"rows": 3, "time": 5}, "got 3 on axis 'rows', which was not built; choose"),
        ({"time": 5}, "got 0 on axis 'rows', which was not built; choose"),
        ({"rows": 4, "time": 2}, "got 5 on axis 'time'; choose another bucket"),
        ({"rows": 4, "time": 9}, "got 5 on axis 'time'; choose another bucket"),
    ],
)
def test_feeds_that_a_bucket_does_not_hold_are_refused(
    counting: GraphRunner, sizes: Mapping[str, int], fault: str
) -> None:
    wider = dataclasses.replace(counting.graph, axes={**counting.graph.axes, "time": Axis((*TIMES, 9))})
    assert fault in refusal(with_graph(counting, wider), [1, 1], [1, 1], sizes)


@pytest.mark.parametrize(("rows", "states"), [([1, 1], [1]), ([1], [1, 1]), ([1, 2], [2, 1])])
def test_a_state_of_another_stream_is_refused(counting: GraphRunner, rows: list[int], states: list[int]) -> None:
    found = refusal(counting, rows, states, {"rows": 4, "time": 5})
    assert f"got {rows} rows fed to states of {states}; give each feed its own stream's state" in found
