"""The artefacts of a graph that runs call after call."""

from pathlib import Path

import numpy as np

from compiler.graph.runners.stream import OriginalCall
from tests.kit.shipped import MIXING, emitted, feeds, relu, silent, stream_artefacts


def test_every_bucket_is_run(tmp_path: Path) -> None:
    one, two = emitted(tmp_path, relu(1), {"batch": 1}), emitted(tmp_path, relu(2), {"batch": 2})
    check = stream_artefacts(tmp_path, [one, two], [feeds(3), feeds(2, 1)])
    assert {bucket: each.max_abs for bucket, (each,) in check.apart().items()} == {"batch=1": 0.0, "batch=2": 0.0}
    assert [(name, each.batch) for name, each in check.invariance().items()] == [("batch=1", 1), ("batch=2", 2)]


def test_so_many_steps_are_compared_as_are_asked_for(tmp_path: Path) -> None:
    one = emitted(tmp_path, relu(1), {"batch": 1})
    steps = [OriginalCall(feed, {"y": np.maximum(feed["x"], 0.0)}, {}) for feed in feeds(5)]
    check = stream_artefacts(tmp_path, [one], [feeds(3)], steps)
    assert [each.steps for most in (2, 24, None) for each in check.differences(silent, most)] == [2, 5, 5]


def test_how_far_rows_are_apart_is_told_by_output(tmp_path: Path) -> None:
    one, four = emitted(tmp_path, relu(1), {"batch": 1}), emitted(tmp_path, MIXING, {"batch": 4})
    found = stream_artefacts(tmp_path, [one, four], [feeds(3), feeds(2, 1)]).apart()
    ((alone,), (mixed,)) = found["batch=1"], found["batch=4"]
    assert alone.relative == 0.0
    assert mixed.tensor == "y" and mixed.relative > 0.01


def test_graph_without_rows_is_compared_whole(tmp_path: Path) -> None:
    whole = emitted(tmp_path, "(float[4,2] x) => (float[2] y) { z = Relu(x) y = ReduceMax<keepdims = 0>(z, a) }"
        .replace(") { z", ") <int64[1] a = {0}> { z"), {}, None)  # fmt: skip
    stream = [{"x": np.ones((4, 2), np.float32)}]
    check = stream_artefacts(tmp_path, [whole], [stream])
    assert [each.max_abs for each in check.apart()["static"]] == [0.0]
    assert check.invariance()["static"].batch == 1
