"""Probes measure what rounding one node does to the results."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.calib.rounding_noise import rounding_nodes, rounding_noise
from tests.kit.graphs import parse

HALF = ir.DataType.FLOAT16


def test_a_probe_is_the_rounding_of_that_node_alone() -> None:
    model = parse("(float[4] x) => (float[4] y) { a = Mul(x, x) b = Sqrt(x) y = Add(a, b) }")
    x = np.array([0.1, 1.7, 3.3, 0.01], np.float32)
    found = rounding_noise(model, HALF, [{"x": x}])
    exact = x * x + np.sqrt(x)
    for node, value, other in (("a_mul", x * x, np.sqrt(x)), ("b_sqrt", np.sqrt(x), x * x)):
        rounded = value.astype(np.float16).astype(np.float32) + other
        expected = np.sum((rounded - exact).astype(np.float64) ** 2) / np.sum(exact.astype(np.float64) ** 2)
        assert found[node] == pytest.approx(expected, rel=1e-3)


def test_rounded_weights_count_as_much_as_rounded_results() -> None:
    w = np.array([[0.1, 0.7], [0.3, 0.9]], np.float32)
    given = parse("(float[1,2] x, float[2,2] w) => (float[1,2] y) { y = MatMul(x, w) }", {"w": w})
    fed = parse("(float[1,2] x, float[2,2] w) => (float[1,2] y) { y = MatMul(x, w) }")
    x = np.array([[0.1, 0.7]], np.float32)
    assert rounding_noise(given, HALF, [{"x": x}])["y_matmul"] == pytest.approx(
        2 * rounding_noise(fed, HALF, [{"x": x, "w": w}])["y_matmul"], rel=1e-3
    )


def test_what_moves_or_is_exact_is_not_probed() -> None:
    model = parse("(float[2,2] x) => (float[2,2] y) { a = Transpose(x) b = Relu(a) y = Exp(b) }")
    assert [node.op_type for node in rounding_nodes(model)] == ["Exp"]


def test_overflow_is_infinite_and_padding_is_not_compared() -> None:
    model = parse("(float[2] x) => (float[2] y) { a = Mul(x, x) y = Sqrt(a) }")
    found = rounding_noise(model, HALF, [{"x": np.array([301.1, np.nan], np.float32)}])
    assert found["a_mul"] == np.inf and 0 < found["y_sqrt"] < 1e-6


def test_the_worst_call_counts_and_progress_is_told() -> None:
    model = parse("(float[1] x) => (float[1] y) { y = Mul(x, x) }")
    feeds = [{"x": np.array([2.0], np.float32)}, {"x": np.array([1.1], np.float32)}]
    told: list[tuple[int, int]] = []
    found = rounding_noise(model, HALF, feeds, lambda done, total: told.append((done, total)))
    assert found["y_mul"] == rounding_noise(model, HALF, feeds[1:])["y_mul"] > 0
    assert told == [(1, 2), (2, 2)]


def test_what_decides_classes_is_probed() -> None:
    """That no class flips on two calls says nothing about the next one, and the distance of two labels says nothing."""
    text = "(float[1,4] x) => (%s) { a = Sqrt(x) b = Exp(a) labels = ArgMax<axis = 1, keepdims = 0>(b) }"
    feeds = [{"x": np.array([[0.1, 1.7, 3.3, 0.01]], np.float32)}]
    found = rounding_noise(parse(text % "int64[1] labels"), HALF, feeds)
    assert found == rounding_noise(parse(text % "float[1,4] b"), HALF, feeds) and min(found.values()) > 0.0
