"""One graph file in OpenVINO: read from memory, compiled as it is told, its shapes known before it runs."""

from collections.abc import Mapping

import numpy as np
import pytest

from compiler.graph import model as graphs
from runtime_lite import BundleRefused
from runtime_lite.executors.graph_file import GraphFile
from runtime_lite.executors.openvino_graph import (
    PRECISIONS,
    CompiledGraph,
    compile_graph,
    read_graph,
    reason_of,
    type_of,
    types_at,
)
from runtime_lite.format.arrays import Array
from tests.kit.graphs import parse
from tests.runtime_lite.bundles import WEIGHT, onnx_bytes

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[rows,2] x, int64[rows] n) => (float[rows,2] y, int64[rows] m) <float[2,2] weight = {0, 0, 0, 0}>
{
    y = MatMul(x, weight)
    m = Add(n, n)
}
"""


def file_of(text: str = TEXT, data: Mapping[str, bytes] | None = None) -> GraphFile:
    return GraphFile("net.onnx", onnx_bytes(text, "w.bin"), {"w.bin": WEIGHT.tobytes()} if data is None else data)


def compiled(text: str = TEXT, precision: str = "float32") -> CompiledGraph:
    file = file_of(text)
    return compile_graph(file, read_graph(file), precision, 1)


def test_the_weights_outlive_the_bytes_that_they_came_from() -> None:
    file = file_of(data={"w.bin": bytes(bytearray(WEIGHT.tobytes()))})
    graph = compile_graph(file, read_graph(file), "float32", 1)
    del file
    scratch = [np.full(64, 7, np.uint8) for _ in range(100)]  # somebody else has the memory now
    y, m = np.empty((1, 2), np.float32), np.empty(1, np.int64)
    graph.run([np.ones((1, 2), np.float32), np.array([3])], [y, m])
    np.testing.assert_allclose(y, WEIGHT.sum(0, keepdims=True))
    assert m == 6 and len(scratch) == 100


def test_one_graph_takes_any_number_of_rows_and_says_what_it_gives() -> None:
    graph = compiled()
    for rows in (1, 5, 1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 2)).astype(np.float32)
        given: list[Array] = [x, np.arange(rows)]
        assert graph.types_for(given) == (("float32", (rows, 2)), ("int64", (rows,)))
        y, m = np.full((rows, 2), np.nan, np.float32), np.zeros(rows, np.int64)
        graph.run(given, [y, m])
        np.testing.assert_allclose(y, x @ WEIGHT, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(m, 2 * np.arange(rows))


def test_float32_is_float32_and_bfloat16_loses_at_most_its_bits() -> None:
    x = np.random.default_rng(0).standard_normal((64, 2)).astype(np.float32)
    given: list[Array] = [x, np.zeros(64, np.int64)]
    truth = x.astype(np.float64) @ WEIGHT
    errors = {}
    for precision in PRECISIONS:
        y, m = np.empty((64, 2), np.float32), np.empty(64, np.int64)
        compiled(precision=precision).run(given, [y, m])
        errors[precision] = np.abs(y - truth).max() / np.abs(truth).max()
    assert errors["float32"] < 1e-6
    assert errors["bfloat16"] < 2**-6  # none where the processor has no instructions for it


def test_an_integer_product_of_weights_alone_leaves_the_activations_as_they_are() -> None:
    codes = np.array([[100, -50], [25, 127]], np.int8)
    text = """(float[rows,2] x, int8[2,2] codes, float scale) => (float[rows,2] y) {
        w = DequantizeLinear(codes, scale)  y = MatMul(x, w) }"""
    model = parse(text, {"codes": codes, "scale": np.array(0.01, np.float32)})
    file = GraphFile("net.onnx", graphs.serialized(model), {})
    graph = compile_graph(file, read_graph(file), "float32", 1)
    x = np.random.default_rng(0).standard_normal((64, 2)).astype(np.float32)
    y = np.empty((64, 2), np.float32)
    graph.run([x], [y])
    np.testing.assert_allclose(y, x @ (codes * np.float32(0.01)), rtol=0.0, atol=1e-5)


def test_shapes_are_known_without_a_run_and_leave_the_model_as_it_was() -> None:
    model = read_graph(file_of())
    assert types_at(model, [(3, 2), (3,)]) == [("float32", (3, 2)), ("int64", (3,))]
    assert type_of(model.inputs[0]) == ("float32", None)
    with pytest.raises(RuntimeError):
        types_at(model, [(3, 3), (3,)])


@pytest.mark.parametrize(
    ("message", "reason"),
    [("a\n\n  b \n", "'b'"), ("Summary:\n-- No rule for: F\nSee elsewhere", "'No rule for: F'"), ("", "''")],
)
def test_the_reason_is_the_line_that_says_it(message: str, reason: str) -> None:
    assert reason_of(RuntimeError(message)) == reason


def test_a_graph_that_cannot_be_read_is_refused_by_its_name() -> None:
    with pytest.raises(BundleRefused, match=r"net\.onnx: expected a graph that OpenVINO \d+\.\d+\.\d+ runs, got"):
        read_graph(file_of(TEXT.replace("MatMul", "Nothing")))
