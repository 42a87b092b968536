"""Rows of any lengths in one call: what `run` and `run_many` return, and what may never share a run."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_lite import BadInput, Model, Runtime
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import npz_from_golden
from runtime_lite.format.manifest import Axis
from runtime_lite.verify import verify_model
from tests.runtime_lite.bundles import (
    WIDTH,
    graph_files,
    plain_golden,
    plain_graph,
    ragged_golden,
    ragged_graph,
    random_chunks,
    random_row,
    truth_of_plain,
    truth_of_ragged,
    truth_of_stream,
    write_bundle,
    write_double_bundle,
    write_ragged_bundle,
)

ATOL = 2e-6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(write_double_bundle(tmp_path_factory.mktemp("double")))


@pytest.fixture(scope="module")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(write_ragged_bundle(tmp_path_factory.mktemp("ragged")))


@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("length", [3, 5, 8])
def test_run_of_rows_of_one_length_returns_arrays_of_that_length(ragged: Model, rows: int, length: int) -> None:
    feeds = [random_row(length, seed) for seed in range(rows)]
    feed = {name: np.concatenate([one[name] for one in feeds]) for name in feeds[0]}
    outputs = ragged.run(feed)
    for name, expected in zip(("y", "mean"), truth_of_ragged(feed["x"], feed["tokens"]), strict=True):
        assert outputs[name].shape == expected.shape
        np.testing.assert_allclose(outputs[name], expected, rtol=0.0, atol=ATOL)


def test_run_with_lengths_returns_a_list_of_rows(ragged: Model) -> None:
    lengths = [8, 3, 5, 4, 7]
    feed = {"x": np.full((5, 11, WIDTH), np.nan, np.float32), "tokens": np.full((5, 11), -1)}
    for row, length in enumerate(lengths):
        for name, array in random_row(length, row).items():
            feed[name][row, :length] = array[0]
    outputs = ragged.run(feed, lengths={"time": lengths})
    for row, length in enumerate(lengths):
        one = random_row(length, row)
        for name, expected in zip(("y", "mean"), truth_of_ragged(one["x"], one["tokens"]), strict=True):
            assert outputs[name][row].shape == expected[0].shape
            np.testing.assert_allclose(outputs[name][row], expected[0], rtol=0.0, atol=ATOL)


def test_run_many_answers_each_feed_as_run_does(ragged: Model) -> None:
    feeds = [random_row(length, seed) for seed, length in enumerate([4, 8, 3, 6, 6, 5, 3])]
    answers = ragged.run_many(feeds)
    assert len(answers) == len(feeds)
    for feed, outputs in zip(feeds, answers, strict=True):
        for name, expected in ragged.run(feed).items():
            assert outputs[name].shape == expected.shape
            np.testing.assert_allclose(outputs[name], expected, rtol=0.0, atol=ATOL)
    assert ragged.run_many([]) == []


@given(st.lists(st.integers(3, 8), max_size=11))
def test_any_rows_in_any_order_have_the_answer_they_have_alone(ragged: Model, lengths: list[int]) -> None:
    feeds = [random_row(length, seed) for seed, length in enumerate(lengths)]
    for feed, outputs in zip(feeds, ragged.run_many(feeds), strict=True):
        for name, expected in zip(("y", "mean"), truth_of_ragged(feed["x"], feed["tokens"]), strict=True):
            assert outputs[name].shape == expected.shape
            np.testing.assert_allclose(outputs[name], expected, rtol=0.0, atol=ATOL)


def test_run_many_puts_all_rows_into_the_smallest_bucket_that_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as nothing was learnt of the costs: what has run once has only opened its session."""
    used: list[Mapping[str, int]] = []
    run = OnnxExecutor.run

    def note(self: OnnxExecutor, sizes: Mapping[str, int], *arrays: Mapping[str, Array]) -> None:
        used.append(sizes)
        run(self, sizes, *arrays)

    monkeypatch.setattr(OnnxExecutor, "run", note)
    with Runtime() as runtime:
        model = runtime.load(write_ragged_bundle(tmp_path / "ragged"))
        model.run_many([random_row(3), random_row(4)])
        model.run_many([random_row(3), random_row(5)])
        model.run_many([random_row(length) for length in (3, 8, 4, 7, 5)])
    assert used[:2] == [{"batch": 4, "time": 4}, {"batch": 4, "time": 8}]
    assert sorted(sizes["batch"] * sizes["time"] for sizes in used[2:]) == [4, 32]  # in the order of the scheduler


def test_run_many_of_exact_sizes_groups_what_may_share_a_run(model: Model) -> None:
    feeds = [{"x": random_chunks(1, seed=seed)[0][:, : 2 + seed % 2], "shift": np.array([seed])} for seed in range(7)]
    for feed, outputs in zip(feeds, model.run_many(feeds, graph="plain"), strict=True):
        np.testing.assert_allclose(outputs["y"], truth_of_plain(feed["x"], feed["shift"]), rtol=0.0, atol=ATOL)


def test_run_many_of_a_graph_with_states_starts_every_row_from_its_initial_states(model: Model) -> None:
    chunks = random_chunks(6)
    answers = model.run_many([{"x": chunk} for chunk in chunks], graph="streaming")
    for chunk, outputs in zip(chunks, answers, strict=True):
        expected = next(truth_of_stream(chunk[None]))[0]
        np.testing.assert_allclose(outputs["y"], expected, rtol=0.0, atol=ATOL)


WRONG_ROWS: dict[str, tuple[object, str]] = {
    "a feed instead of a list": (random_row(5), "expected a list of feeds, got a dict; write [{'name': array}, ...]"),
    "a generator": ((row for row in [random_row(5)]), "expected a list of feeds, got a generator"),
    "two rows in one feed": (
        [random_row(5), {name: np.repeat(array, 2, 0) for name, array in random_row(5).items()}],
        "ragged.run_many: feed 1: expected 1 row, got 2; make each row a feed of its own",
    ),
    "no rows in one feed": (
        [random_row(5), {name: array[:0] for name, array in random_row(5).items()}],
        "feed 1: 'x': expected at least 1 row on axis 0 of [batch, time, 2], got 0",
    ),
    "another dtype in one feed": (
        [random_row(5), random_row(4), {**random_row(5), "x": random_row(5)["x"].astype(np.float64)}],
        "ragged.run_many: feed 2: 'x': expected float32 of shape [batch, time, 2], got dtype float64",
    ),
    "too long": ([random_row(5), random_row(9)], "feed 1: 'x': expected at most 8 on axis 1 of [batch, time, 2]"),
    "too short": ([random_row(2)], "feed 0: 'x': expected at least 3 on axis 1 of [batch, time, 2], got 2"),
    "two lengths in one row": (
        [{"x": random_row(5)["x"], "tokens": random_row(4)["tokens"]}],
        "feed 0: 'tokens': expected size 5 on axis 1 of [batch, time] like 'x', got 4",
    ),
    "a length fed": (
        [{**random_row(5), "time_length": np.array([5])}],
        "got 'time_length' (role length); leave",
    ),
    "not a mapping": ([None], "feed 0: expected a mapping of input names to arrays, got a NoneType"),
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_wrong_rows_are_refused_before_anything_runs(ragged: Model, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds, sentence = WRONG_ROWS[case]
    monkeypatch.setattr(OnnxExecutor, "run", lambda *_: pytest.fail("ran"))
    with pytest.raises(BadInput) as refusal:
        ragged.run_many(feeds)  # type: ignore[arg-type]
    assert sentence in str(refusal.value)


def test_without_independent_rows_rows_never_share_a_run(tmp_path: Path) -> None:
    graph = ragged_graph()
    alone = dataclasses.replace(
        graph,
        rows_independent=False,
        axes={**graph.axes, "batch": Axis((1,))},
        artifacts=tuple(artifact for artifact in graph.artifacts if artifact.sizes["batch"] == 1),
    )
    files = graph_files() | {graph.golden: npz_from_golden(ragged_golden())}
    two = {name: np.repeat(array, 2, 0) for name, array in random_row(5).items()}
    with Runtime() as runtime:
        model = runtime.load(write_bundle(tmp_path / "bundle", {"ragged": alone}, files))
        expected = truth_of_ragged(**random_row(5))[0]
        np.testing.assert_allclose(model.run(random_row(5))["y"], expected, rtol=0.0, atol=ATOL)
        np.testing.assert_allclose(model.run_many([random_row(5)])[0]["y"], expected, rtol=0.0, atol=ATOL)
        np.testing.assert_allclose(model.run(random_row(5), lengths={"time": [5]})["y"], expected, rtol=0.0, atol=ATOL)
        with pytest.raises(BadInput) as refusal:
            model.run_many([random_row(5), random_row(4)])
        assert str(refusal.value) == (
            "ragged.run_many: expected a graph that may take rows of several callers, "
            "got one whose rows are not proved independent; call run() for each feed"
        )
        for lengths in (None, {"time": [5, 4]}):
            with pytest.raises(BadInput, match=r"ragged\.run: 'x': expected 1 row on axis 0 of .*, got 2"):
                model.run(two, lengths=lengths)
        assert [c.bucket for c in verify_model(model) if c.output == "y"] == ["batch=1,time=4", "batch=1,time=8"]


def test_an_input_that_holds_for_all_rows_is_never_shared_by_callers(tmp_path: Path) -> None:
    graph = plain_graph()
    inputs = (graph.inputs[0], dataclasses.replace(graph.inputs[1], shape=(1,)))
    files = graph_files() | {graph.golden: npz_from_golden(plain_golden())}
    with Runtime() as runtime:
        graph = dataclasses.replace(graph, inputs=inputs)
        model = runtime.load(write_bundle(tmp_path / "bundle", {"plain": graph}, files))
        feed = {"x": random_chunks(1)[0], "shift": np.array([1])}
        with pytest.raises(BadInput, match="got one whose input 'shift' holds for all rows; call run"):
            model.run_many([feed, feed])
