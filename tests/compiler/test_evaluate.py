"""evaluate: one node or a small graph on arrays, with the runtime's own rewriting off."""

import numpy as np
import pytest

from compiler import ir as house
from compiler.evaluate import evaluate_node, open_session, run_model
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
    session = open_session(house.serialized(model), threads=1)
    assert session.get_session_options().intra_op_num_threads == 1
