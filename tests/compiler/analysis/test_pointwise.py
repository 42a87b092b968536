"""Which nodes commute with Concat along an axis."""

import pytest

from compiler.analysis.pointwise import pointwise_axis
from tests.kit.graphs import node_named, parse, random_weights

CASES = {
    "y = Relu(x)": 1,
    "y = Add(x, b)": 1,
    "y = MatMul(x, w)": 1,
    "y = Transpose<perm = [0, 2, 1]>(x)": 2,
    "y = LayerNormalization<axis = -1>(x, b, b)": 1,
    "y = Softmax<axis = -1>(x)": 1,
    "y = Softmax<axis = 1>(x)": None,
    "y = ReduceMax<keepdims = 1>(x, one)": None,
    "y = Concat<axis = 1>(x, x)": None,
    "y = com.acme.Turn(x)": None,
}


@pytest.mark.parametrize("body", CASES)
def test_the_axis_is_followed_or_the_node_mixes_entries(body: str) -> None:
    text = f"(float[1,6,4] x, float[4,4] w, float[4] b) => (float[1,a,c] y) <int64[1] one = {{1}}> {{ {body} }}"
    node = node_named(parse(text, random_weights({"w": (4, 4), "b": (4,)})), "y")
    assert pointwise_axis(node, {0: 1}) == CASES[body]
