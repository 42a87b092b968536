"""inner_axes: channels that constant weights make and one product reads."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.rewriting.pruning.inner_axes import inner_axes
from tests.kit.graphs import parse, random_weights
from tests.kit.quantization import HIDDEN, speech

WEIGHTS = random_weights(
    {"w": (4, 12), "u": (4, 12), "b": (12,), "v": (12, 4), "c": (4,), "other": (12, 4), "gain": (12,), "wide": (4, 24)}
)


def graph(body: str, more: str = "", outputs: str = "float[n,t,4] y") -> ir.Model:
    named = {name: array for name, array in WEIGHTS.items() if f"{name}," in f"{body},{more}," or f"{name})" in body}
    declared = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in named.items())
    return parse(f"(float[n,t,4] x, {declared}) => ({outputs}) {more} {{ {body} }}", named)


SWISH = "m = MatMul(x, w)  h = Add(m, b)  s = Sigmoid(h)  g = Mul(h, s)  r = MatMul(g, v)  y = Add(r, c)"


def test_a_feed_forward_layer_has_one() -> None:
    (axis,), obstacles = inner_axes(graph(SWISH))
    assert (axis.name, axis.width) == ("r_matmul", 12)
    assert {(str(value.name), along) for value, along in axis.constants} == {("w", 1), ("b", 0), ("v", 0)}
    assert [str(value.name) for value in axis.values] == ["m", "h", "s", "g"]
    assert [str(value.name) for value in axis.sources] == ["x"]
    np.testing.assert_array_equal(axis.bias, WEIGHTS["c"])
    assert [(str(each.product.name), each.reason) for each in obstacles] == [("m_matmul", "x is an input of the graph")]


def test_a_gate_with_a_product_of_its_own_belongs_to_it() -> None:
    body = "a = MatMul(x, w)  i = MatMul(x, u)  s = Sigmoid(i)  g = Mul(a, s)  y = MatMul(g, v)"
    (axis,), _ = inner_axes(graph(body))
    assert {(str(value.name), along) for value, along in axis.constants} == {("w", 1), ("u", 1), ("v", 0)}
    assert axis.bias is None


def test_axes_are_followed_through_transposes() -> None:
    body = """m = MatMul(x, w)  t = Transpose<perm = [2, 0, 1]>(m)  q = Relu(t)  g = Transpose<perm = [1, 2, 0]>(q)
        y = MatMul(g, v)"""
    (axis,), _ = inner_axes(graph(body))
    assert [str(value.name) for value in axis.values] == ["m", "t", "q", "g"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("m = MatMul(x, w)  g = Softmax(m)  y = MatMul(g, v)", "Softmax g_softmax computes over all of them"),
        ("m = MatMul(x, w)  g = LayerNormalization(m, gain)  y = MatMul(g, v)", "computes over all of them"),
        ("m = MatMul(x, w)  g = Relu(m)  y = MatMul(g, v)  z = MatMul(g, other)", "z_matmul sums over the same"),
        ("m = MatMul(x, w)  z = Relu(m)  y = MatMul(z, v)", "z is an output of the graph"),
        ("m = MatMul(x, w)  g = CumSum(m, last)  y = MatMul(g, v)", "CumSum is not followed"),
        ("m = MatMul(x, w)  g = Reshape(m, same)  y = MatMul(g, v)", "Reshape is not followed"),
        (
            "m = MatMul(x, wide)  g, q = Split<axis = 2, num_outputs = 2>(m)  y = MatMul(g, v)",
            "Split g_split makes them",
        ),
        (
            "m = MatMul(x, w)  n = Shape<start = 2>(m)  z = Cast<to = 1>(n)  y = MatMul(m, v)",
            "n_shape reads the number",
        ),
        ("m = MatMul(x, w)  z = ReduceMax(m, last)  y = MatMul(m, v)", "ReduceMax z_reducemax computes"),
    ],
)
def test_what_is_in_the_way_is_named(body: str, reason: str) -> None:
    outputs = "float[n,t,4] y" + (", float[d0,d1,d2] z" if "z = MatMul" in body or "z = Relu" in body else "")
    outputs += ", float[1] z" if "z = Cast" in body else ", float[d0,d1,d2] z" if "z = ReduceMax" in body else ""
    more = "<int64[3] same = {0, 0, -1}>" if "same" in body else "<int64[1] last = {2}>" if "last" in body else ""
    axes, obstacles = inner_axes(graph(body, more, outputs))
    assert not axes
    reasons = {str(each.product.name): each.reason for each in obstacles}
    assert reason in reasons["y_matmul"]


def test_weights_that_serve_two_layers_hold_both() -> None:
    """One weight is read along another axis elsewhere: what may lose an entry here may not there."""
    body = """m = MatMul(x, w)  g = Relu(m)  r = MatMul(g, v)  t = Transpose<perm = [1, 0]>(w)  p = MatMul(g2, t)
        y = Add(r, p)"""
    model = graph(f"k = MatMul(x, u)  g2 = Softmax(k)  {body}")
    axes, obstacles = inner_axes(model)
    assert not axes
    assert all("g2_softmax" in each.reason for each in obstacles if each.product.name in ("r_matmul", "p_matmul"))


def test_of_a_stream_the_feed_forward_layer_alone_is_free() -> None:
    axes, obstacles = inner_axes(speech().model)
    assert [(axis.name, axis.width) for axis in axes] == [("reduced_matmul", HIDDEN)]
    assert {str(each.product.name) for each in obstacles} >= {"expanded_matmul", "query_matmul", "logits_matmul"}
    assert all(each.reason for each in obstacles)
