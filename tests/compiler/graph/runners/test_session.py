"""evaluate: one node or a small graph on arrays, with the runtime's own rewriting off."""

from typing import Any

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners import session
from compiler.graph.runners.session import (
    evaluate_node,
    open_model,
    open_session,
    run_model,
    with_constants_dequantized,
)
from tests.kit.graphs import node_named, parse


def test_a_node_is_evaluated_alone() -> None:
    node = node_named(parse("(float[2,3] x) => (float[3,2] y) { y = Transpose<perm = [1, 0]>(x) }"), "y")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = evaluate_node(node, [x])
    np.testing.assert_array_equal(y, x.T)
    assert node.inputs[0] is not None
    assert node.inputs[0].name == "x"


def test_every_output_of_a_node_is_returned() -> None:
    node = node_named(parse("(float[4] x) => (float[2] a, float[2] b) { a, b = Split<num_outputs = 2>(x) }"), "a")
    first, second = evaluate_node(node, [np.arange(4, dtype=np.float32)])
    assert (first.tolist(), second.tolist()) == ([0, 1], [2, 3])


@pytest.mark.parametrize(("dtype", "text"), [(np.float32, "float"), (np.float64, "double"), (np.int64, "int64")])
def test_types_are_those_of_the_graph(dtype: type, text: str) -> None:
    node = node_named(parse(f"({text}[2] x, {text}[2] z) => ({text}[2] y) {{ y = Add(x, z) }}"), "y")
    (y,) = evaluate_node(node, [np.ones(2, dtype), np.ones(2, dtype)])
    assert y.dtype == dtype


def test_a_model_answers_by_name() -> None:
    model = parse("(float[2] x) => (float[2] y, float[2] z) { y = Relu(x)  z = Neg(x) }")
    results = run_model(model, {"x": np.array([-1, 2], np.float32)})
    assert results["y"].tolist() == [0, 2]
    assert results["z"].tolist() == [1, -2]


def test_sessions_run_on_the_threads_they_are_given() -> None:
    model = parse("(float[2] x) => (float[2] y) { y = Relu(x) }")
    session = open_session(graphs.serialized(model), threads=1)
    assert session.get_session_options().intra_op_num_threads == 1


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("float16", np.float16)])
def test_integer_constants_become_the_numbers_they_stand_for(kind: str, dtype: type[np.floating[Any]]) -> None:
    model = parse(
        f"({kind}[2,2] x, int8[2,3] w, {kind}[3] scale) => ({kind}[2,3] y) "
        "{ wide = DequantizeLinear<axis = 1>(w, scale)  y = MatMul(x, wide) }",
        {"w": np.array([[1, -2, 3], [-128, 127, 0]], np.int8), "scale": np.array([0.1, 0.2, 0.3], dtype)},
    )
    folded = with_constants_dequantized(model)
    assert [node.op_type for node in folded.graph] == ["MatMul"]
    assert [node.op_type for node in model.graph] == ["DequantizeLinear", "MatMul"], "the model itself stays"
    x = np.array([[1, 2], [3, 4]], dtype)
    assert run_model(folded, {"x": x})["y"].tobytes() == run_model(model, {"x": x})["y"].tobytes()


def test_what_is_computed_is_not_folded() -> None:
    model = parse("(int8[2] x) => (float[2] y) <float scale = {0.5}> { y = DequantizeLinear(x, scale) }")
    assert with_constants_dequantized(model) is model


def test_weights_that_are_too_large_to_be_copied_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    text = "(float[2,32] x, float[32,32] w, float[32] b) => (float[2,32] y) { h = MatMul(x, w)  y = Add(h, b) }"
    model, feeds = parse(text, {"w": wide, "b": wide[0]}), {"x": wide[:2]}
    expected = run_model(model, feeds)["y"]
    monkeypatch.setattr(session, "MOST_PACKED_BYTES", wide.nbytes - 1)
    opened = open_model(model)
    assert isinstance(opened, session._Fed)
    assert np.shares_memory(opened.weights["w"], graphs.array_of(model.graph.initializers["w"]))
    np.testing.assert_allclose(opened.run(["y"], feeds)[0], expected, rtol=1e-5, atol=1e-5)
    assert feeds.keys() == {"x"}
    np.testing.assert_allclose(open_model(model, optimize=True).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)
