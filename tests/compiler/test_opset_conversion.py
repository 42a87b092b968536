"""Graphs of old operator sets mean the same in the set that passes write."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.errors import Refused
from compiler.evaluate import open_session
from compiler.ir import OLDEST_OPSET
from compiler.opset_conversion import LARGEST, raised
from tests.kit.graphs import ops_of, parse

X = "(float[batch,time,4] x) => (float[p,q,r] y)"


def same(model: ir.Model) -> ir.Model:
    """The converted graph, which gives what the graph gave."""
    converted = raised(model)
    x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    (wanted,), (got,) = (open_session(house.serialized(each)).run(None, {"x": x}) for each in (model, converted))
    np.testing.assert_array_equal(got, wanted)
    return converted


def test_softmax_of_opset_11_runs_over_all_axes_from_one_on() -> None:
    converted = same(parse(f"{X} {{ y = Softmax<axis = 1>(x) }}", opset=11))
    assert converted.graph.opset_imports[""] == OLDEST_OPSET
    assert ops_of(converted) == ["Shape", "Flatten", "Softmax", "Reshape"]


def test_new_nodes_are_named_and_located_after_the_node_that_they_serve() -> None:
    converted = same(parse(f"{X} {{ a = Relu(x)  y = ReduceSum<axes = [1]>(a) }}", opset=11))
    assert [node.name for node in converted.graph] == ["a_relu", "y_reducesum_constant", "y_reducesum"]
    lines = [house.source_of(node) for node in converted.graph]
    assert lines[0].startswith("tiny.py:1 ") and lines[1] == lines[2] and lines[2].startswith("tiny.py:2 ")


def test_a_node_that_gives_way_to_others_hands_its_line_on() -> None:
    text = "(float[batch,time,4] x, float[3] scales) => (float[p,q,r] y) { y = Upsample(x, scales) }"
    converted = same(parse(text, {"scales": np.array([1, 2, 1], np.float32)}, opset=9))
    assert ops_of(converted) == ["Constant", "Resize"]
    assert all(node.name and house.source_of(node).startswith("tiny.py:1 ") for node in converted.graph)


def test_weights_stay_as_they_are() -> None:
    weights = np.random.default_rng(0).standard_normal((4, LARGEST)).astype(np.float32)
    model = parse("(float[batch,time,4] x, float[4,n] w) => (float[p,q,r] y) { y = MatMul(x, w) }", {"w": weights}, 12)
    kept = same(model).graph.initializers["w"].const_value
    assert kept is model.graph.initializers["w"].const_value


def test_a_new_graph_is_left_alone() -> None:
    model = parse(f"{X} {{ y = Relu(x) }}", opset=OLDEST_OPSET)
    assert raised(model) is model


def test_what_cannot_be_converted_is_refused_in_one_line() -> None:
    with pytest.raises(Refused, match="is of operator set 9, and its conversion to 18 fails: ") as caught:
        raised(parse("(float[2] x, int64[1] k) => (float[p] y) { y, i = TopK<axis = 0>(x, k) }", opset=9))
    assert caught.value.cure == "export the model with opset 18 or newer"
