"""The gates on graphs that run call after call."""

from pathlib import Path

import numpy as np
import pytest

from compiler.errors import GateFailed
from compiler.recipe.gates import ParityGate
from compiler.targets.onnx_static import OnnxStatic
from compiler.verify.streams import StreamGates
from tests.compiler.verify.test_gates import emitted, feeds, relu

GATE = ParityGate(max_abs=1e-5, chained_steps=4)


def test_buckets_that_agree_and_buckets_that_do_not(tmp_path: Path) -> None:
    one, two = emitted(tmp_path, relu(1), {"batch": 1}), emitted(tmp_path, relu(2), {"batch": 2})
    streams = [feeds(3), feeds(2, 1)]
    assert StreamGates(tmp_path, "net", [one, two], GATE, [], streams, OnnxStatic().open).check_buckets() == {
        "batch=1": 0.0,
        "batch=2": 0.0,
    }
    tried = StreamGates(tmp_path, "net", [one, two], GATE, [], streams, OnnxStatic().open).check_invariance()
    assert [(name, each["batch"]) for name, each in tried.items()] == [("batch=1", 1), ("batch=2", 2)]
    mixing = "(float[4,2] x) => (float[4,2] y) <int64[1] z = {0}> { r = Relu(x) m = ReduceSum(r, z) y = Add(r, m) }"
    four = emitted(tmp_path, mixing, {"batch": 4})
    with pytest.raises(GateFailed, match=r"stage verify batch=4.*expected y of every row as alone"):
        StreamGates(tmp_path, "net", [one, four], GATE, [], streams, OnnxStatic().open).check_buckets()


def test_graph_without_rows_is_compared_whole(tmp_path: Path) -> None:
    whole = emitted(tmp_path, "(float[4,2] x) => (float[2] y) { z = Relu(x) y = ReduceMax<keepdims = 0>(z, a) }"
        .replace(") { z", ") <int64[1] a = {0}> { z"), {}, None)  # fmt: skip
    stream = [{"x": np.ones((4, 2), np.float32)}]
    check = StreamGates(tmp_path, "net", [whole], GATE, [], [stream], OnnxStatic().open)
    assert check.check_buckets() == {"static": 0.0}
    assert check.check_invariance()["static"]["batch"] == 1
