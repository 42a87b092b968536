"""Rows of any lengths give the same answer alone, padded, beside any neighbours, and whatever lies in their padding."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from runtime_lite import Runtime
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import initial_state
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph
from tests.runtime_lite.bundles import (
    BUCKETS,
    TIMES,
    plain_graph,
    ragged_graph,
    random_row,
    truth_of_ragged,
    write_ragged_bundle,
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
