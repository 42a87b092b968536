"""A graph file on OpenVINO as gates run it: outputs by name, of any rows, from several threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from compiler.errors import Refused, ToolchainAbsent
from compiler.targets.openvino.session import open_graph
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors import openvino_graph
from tests.runtime_lite.bundles import WEIGHT, onnx_bytes

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[rows,2] x) => (float[rows,2] y, float[rows,2] z) <float[2,2] weight = {0, 0, 0, 0}>
{
    y = MatMul(x, weight)
    z = Relu(y)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "net.onnx").write_bytes(onnx_bytes(TEXT, "w.bin"))
    return tmp_path / "net.onnx"


def test_outputs_come_in_the_order_that_is_asked_for(file: Path) -> None:
    session, x = open_graph(file, "float32"), np.ones((1, 2), np.float32)
    y, z = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x @ WEIGHT)
    np.testing.assert_array_equal(z, np.maximum(y, 0))
    np.testing.assert_array_equal(session.run(["z", "y"], {"x": x}), [z, y])
    assert session.run([], {"x": x}) == []


def test_answers_of_earlier_calls_stay_and_calls_do_not_meet(file: Path) -> None:
    session = open_graph(file, "float32")

    def call(number: int) -> bool:
        x = np.full((1 + number % 5, 2), number, np.float32)
        return bool(np.allclose(session.run(["y"], {"x": x})[0], x @ WEIGHT))

    (first,) = session.run(["y"], {"x": np.ones((1, 2), np.float32)})
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(200)))
    np.testing.assert_allclose(first, WEIGHT.sum(0, keepdims=True))


def test_a_graph_that_openvino_does_not_take_is_refused_with_the_operator(file: Path) -> None:
    strange = TEXT.replace('"" : 20', '"" : 20, "d" : 1').replace("Relu", "d.Strange")
    file.write_bytes(onnx_bytes(strange, "w.bin"))
    with pytest.raises(
        Refused, match=r"net\.onnx: expected a graph that OpenVINO .* runs, got .*d\.Strange"
    ) as refused:
        open_graph(file, "float32")
    assert "another target" in refused.value.cure


def test_without_openvino_the_cure_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise EngineAbsent("expected the package openvino, got none")

    monkeypatch.setattr(openvino_graph, "import_openvino", absent)
    with pytest.raises(ToolchainAbsent, match="expected the package openvino, got none"):
        open_graph(file, "float32")
