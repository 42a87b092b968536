"""Which nodes commute with Concat along an axis."""

import pytest

from compiler.proof.propagation.pointwise import pointwise_axes
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
    expected = CASES[body]
    assert pointwise_axes(node, {0: 1}) == (None if expected is None else (expected,))


def test_every_part_of_a_split_has_the_axis() -> None:
    model = parse(
        "(float[1,6,4] x) => (float[1,6,2] y, float[1,6,2] z) { y, z = Split<axis = -1, num_outputs = 2>(x) }"
    )
    assert pointwise_axes(node_named(model, "y"), {0: 1}) == (1, 1)


def test_a_constant_that_differs_from_entry_to_entry_is_no_function_of_one() -> None:
    node = node_named(parse("(float[1,6,4] x, float[6,4] t) => (float[1,6,4] y) { y = Add(x, t) }",
                            random_weights({"t": (6, 4)})), "y")  # fmt: skip
    assert pointwise_axes(node, {0: 1}) is None
