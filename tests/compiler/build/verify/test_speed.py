"""How long a call takes: on every element type and with full windows; buckets of one file share what runs it."""

import dataclasses
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from compiler.build.verify.speed import bucket_calls, full_feeds, measure_ratios, measure_speed
from compiler.graph.runners.session import Session
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.targets.base import Emitted
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import parse
from tests.kit.shipped import emitted, relu


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "int64", "int8", "bool"])
def test_speed_is_measured_on_every_type(dtype: str, tmp_path: Path) -> None:
    artefact = emitted(tmp_path, f"({dtype}[1,2] x) => ({dtype}[1,2] y) {{ y = Identity(x) }}", {"batch": 1})
    (row,) = measure_speed(tmp_path, [artefact], "net", OnnxStatic().open)
    assert (row.graph, row.sizes, row.threads) == ("net", "batch=1", 1)
    assert 0 < row.p50_ms <= row.p95_ms


def test_windows_are_full_and_rows_as_long_as_the_bucket() -> None:
    text = """(float[batch,4] x, int32[batch] valid, int64[batch] count, float[batch,8] mask, int8[batch,8] k)
        => (float[batch,4] y) { y = Relu(x) }"""
    cache = CacheAxis("cache", 8, 4, length_input="count", mask_input="mask")
    lowered = Lowered(
        "net", parse(text), batch_axis="batch", caches=(cache,), padded_axes=(PaddedAxis("time", "valid"),)
    )
    feeds = full_feeds(Emitted({"batch": 2, "time": 4}, "", (), lowered))
    assert {name: (array.shape, array.dtype.name) for name, array in feeds.items()} == {
        "x": ((2, 4), "float32"), "valid": ((2,), "int32"), "count": ((2,), "int64"), "mask": ((2, 8), "float32"),
        "k": ((2, 8), "int8"),
    }  # fmt: skip
    assert (feeds["valid"].tolist(), feeds["count"].tolist()) == ([4, 4], [8, 8])
    assert feeds["mask"].all() and not feeds["k"].any() and len(np.unique(feeds["x"])) == 8


def test_buckets_of_one_file_share_what_runs_it(tmp_path: Path) -> None:
    lowered = Lowered("net", parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }"), batch_axis="batch")
    artifacts = OnnxStatic().emit(lowered, {"batch": (1, 4)}).artifacts
    session = mock.Mock(spec=Session)
    calls = bucket_calls(tmp_path, artifacts, opens := mock.Mock(return_value=session))
    assert list(calls) == ["batch=1", "batch=4"]
    opens.assert_called_once_with(tmp_path / "graphs/net.batch.onnx")
    calls["batch=4"]()
    (_, feeds), _ = session.run.call_args
    assert feeds["x"].shape == (4, 2)


def test_speed_is_measured_on_what_was_opened_once_per_file(tmp_path: Path) -> None:
    lowered = Lowered("net", parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }"), batch_axis="batch")
    artifacts = OnnxStatic().emit(lowered, {"batch": (1, 4)}).artifacts
    other = dataclasses.replace(artifacts[0], file="graphs/other.onnx", sizes={"batch": 9})
    opens = mock.Mock(return_value=mock.Mock(spec=Session))
    found = measure_speed(tmp_path, [*artifacts, other], "net", opens)
    assert [row.sizes for row in found] == ["batch=1", "batch=4", "batch=9"]
    assert [path.name for (path,), _ in opens.call_args_list] == ["net.batch.onnx", "other.onnx"]


def test_two_graphs_are_compared_bucket_by_bucket(tmp_path: Path) -> None:
    artifacts = [emitted(tmp_path, relu(rows), {"batch": rows}) for rows in (1, 2)]
    found = measure_ratios(*2 * (tmp_path, artifacts, OnnxStatic().open), None)
    assert [each.sizes for each in found] == ["batch=1", "batch=2"]
    assert all(each.least <= each.median <= each.most for each in found)
