"""Wired graphs as one thing to run: what callers give and get, and that nothing runs of a feed that does not fit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, Model, Runtime
from runtime_lite.calls.pipeline import Pipeline
from runtime_lite.format.manifest import Wire
from tests.runtime_lite.bundles import (
    random_chunks,
    random_row,
    truth_of_plain,
    truth_of_ragged,
    truth_of_stream,
    write_wired_bundle,
)

ALONG = (Wire("ragged", "y", "plain", "x"),)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "fan": write_wired_bundle(tmp_path_factory.mktemp("fan")),
        "ragged": write_wired_bundle(tmp_path_factory.mktemp("ragged"), ALONG),
    }


@pytest.fixture
def fan(bundles: dict[str, Path]) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(bundles["fan"])


@pytest.fixture
def ragged(bundles: dict[str, Path]) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(bundles["ragged"])


def fan_feed(rows: int, seed: int = 0) -> dict[str, Any]:
    tokens = np.random.default_rng(seed).integers(0, 3, (rows, 3))
    return {"x": random_chunks(1, rows, seed)[0], "shift": np.arange(rows) + seed, "tokens": tokens}


def truth_of_fan(feed: dict[str, Any]) -> dict[str, Any]:
    y = next(truth_of_stream(feed["x"][None]))[0]
    by_tokens, mean = truth_of_ragged(y, feed["tokens"])
    return {"streaming.y": y, "plain.y": truth_of_plain(y, feed["shift"]), "ragged.y": by_tokens, "mean": mean}


def assert_same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(got) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0.0, atol=2e-5)


def test_names_are_the_graphs_own_where_one_graph_has_them(fan: Model) -> None:
    pipeline = fan.asked()
    assert isinstance(pipeline, Pipeline)
    assert pipeline.name == "streaming+plain+ragged" and pipeline.order == ("streaming", "plain", "ragged")
    assert pipeline.fed == {"x": 0, "shift": 0, "tokens": 0}
    assert list(pipeline.outputs) == ["streaming.y", "plain.y", "ragged.y", "mean"] == list(pipeline.batched)
    assert pipeline.has_states and pipeline.most_rows == 4 and pipeline.batching_fault() is None


def test_graphs_run_behind_those_that_they_take_from_whatever_their_order_in_the_bundle(ragged: Model) -> None:
    assert list(ragged.bundle.manifest.graphs) == ["plain", "ragged"]
    assert ragged.asked().name == "ragged+plain"
    assert ragged.asked("plain").name == "plain"  # each graph may still be run alone


@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_any_number_of_rows_goes_through_all_graphs(fan: Model, rows: int) -> None:
    feed = fan_feed(rows, seed=rows)
    assert_same(fan.run(feed), truth_of_fan(feed))


def test_feeds_of_many_callers_go_through_together(fan: Model) -> None:
    feeds = [fan_feed(1, seed) for seed in range(7)]
    for got, feed in zip(fan.run_many(feeds), feeds, strict=True):
        assert_same(got, truth_of_fan(feed))


def test_every_row_has_its_length_in_every_graph(ragged: Model) -> None:
    lengths = [3, 6, 4, 5, 6, 3]
    rows = [random_row(length, seed) for seed, length in enumerate(lengths)]
    padded = {
        "x": np.stack([np.pad(row["x"][0], ((0, 8 - n), (0, 0)), constant_values=np.nan)
                       for row, n in zip(rows, lengths, strict=True)]),
        "tokens": np.stack([np.pad(row["tokens"][0], (0, 8 - n)) for row, n in zip(rows, lengths, strict=True)]),
        "shift": np.arange(6),
    }  # fmt: skip
    got = ragged.run(padded, lengths={"time": lengths})
    for at, row in enumerate(rows):
        y, mean = truth_of_ragged(row["x"], row["tokens"])
        expected = {"plain.y": truth_of_plain(y, np.array([at])), "ragged.y": y, "mean": mean}
        assert_same({name: got[name][at][None] for name in ("plain.y", "ragged.y", "mean")}, expected)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an input is missing": ({"shift": None}, "ragged+plain.run: expected the inputs 'x', 'tokens', 'shift', got no 's"),
    "an input that a wire fills": ({"plain.x": np.ones(1)}, "got unknown input 'plain.x'; leave it out"),
    "an input of no graph": ({"audio": np.ones(1)}, "got unknown input 'audio'; leave it out"),
    "rows that differ": (
        {"shift": np.arange(2)},
        "ragged+plain.run: graph 'plain': 'shift': expected size 1 on axis 0 of [batch] like 'x', got 2; feed the same",
    ),
    "a value that is not finite": (
        {"x": np.full((1, 6, 2), np.nan, np.float32)},
        "ragged+plain.run: graph 'ragged': 'x': expected finite values",
    ),
    "what the first gives does not fit into the second": (
        random_row(8),
        "ragged+plain.run: graph 'plain': 'x': expected one of the sizes 2, 3 on axis 1",
    ),
    "another type": ({"shift": np.ones(1)}, "ragged+plain.run: graph 'plain': 'shift': expected"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_feed_that_does_not_fit_somewhere_is_refused_before_anything_runs(ragged: Model, case: str) -> None:
    change, sentence = WRONG[case]
    feed = {**random_row(6), "shift": np.zeros(1, np.int64)} | change
    with pytest.raises(BadInput) as refused:
        ragged.run({name: array for name, array in feed.items() if array is not None})
    assert sentence in str(refused.value)
    assert ragged._server.request_counts().submitted == 0


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ({"frames": [2]}, "expected lengths of the axes 'time', got 'frames'"),
        ([3], "expected lengths as a mapping, got a list"),
        ({"time": [9]}, "graph 'ragged': lengths['time'][0]: expected from 3 to 6, got 9"),
        ({"time": [3, 3]}, "graph 'ragged': lengths['time']: expected 1 integers, one per row"),
    ],
)
def test_wrong_lengths_are_refused(ragged: Model, lengths: Any, sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        ragged.run({**random_row(6), "shift": np.zeros(1, np.int64)}, lengths=lengths)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("shift", [np.zeros(2, np.int64), np.int64(1), None, "x"])
def test_rows_of_later_graphs_are_as_many_beside_lengths(ragged: Model, shift: Any) -> None:
    with pytest.raises(BadInput, match=r"graph 'plain': 'shift': expected"):
        ragged.run({**random_row(6), "shift": shift}, lengths={"time": [4]})
    with pytest.raises(BadInput, match=r"graph 'plain': 'shift': expected"):
        ragged.run({**random_row(6), "shift": shift})
