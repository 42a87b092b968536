"""inner_axes: channels that constant weights make and one product reads."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Array
from compiler.passes.merge_kv_heads import MergeKvHeads
from compiler.rewriting.pruning.inner_axes import inner_axes
from tests.kit.attention import HEADS as ALL_HEADS
from tests.kit.attention import SIZE as HEAD_SIZE
from tests.kit.attention import attention
from tests.kit.graphs import parse, random_weights
from tests.kit.pruning import HEADS, SIZE, attending
from tests.kit.quantization import HIDDEN, WIDTH, speech

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
    assert (axis.name, axis.count, axis.block) == ("r_matmul", 12, 1)
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
        ("m = MatMul(x, w)  k = Reshape(m, flat)  g = Reshape(k, same)  y = MatMul(g, v)", "takes them apart or"),
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
    more = (
        "<int64[2] flat = {0, -1}, int64[3] same = {0, -1, 12}>"
        if "same" in body
        else "<int64[1] last = {2}>"
        if "last" in body
        else ""
    )
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


def test_of_a_stream_a_convolution_and_the_feed_forward_layer_are_free() -> None:
    axes, obstacles = inner_axes(speech().model)
    assert [(axis.name, axis.count) for axis in axes] == [("projected_matmul", WIDTH), ("reduced_matmul", HIDDEN)]
    assert {str(each.product.name) for each in obstacles} == {"expanded_matmul", "query_matmul", "logits_matmul"}
    assert all(each.reason for each in obstacles)


def test_heads_are_parts_of_projections_scores_and_caches() -> None:
    lowered = attending()
    axes, obstacles = inner_axes(lowered.model, lowered.states)
    (axis,) = axes
    assert (axis.name, axis.count, axis.block) == ("out_matmul", HEADS, SIZE)
    assert {str(value.name): along for value, along in axis.constants} == {
        "wq": 1, "wk": 1, "wv": 1, "bias": 0, "wo": 0,
    }  # fmt: skip
    assert {str(value.name): along for value, along in axis.carried} == {"keys": 2, "values": 1}
    assert {"scores", "weights", "context"} <= {str(value.name) for value in axis.values}
    assert {str(each.product.name) for each in obstacles} == {"q_matmul", "k_matmul", "v_matmul"}
    np.testing.assert_array_equal(axis.indices(np.array([0, 3]), 8), [0, 1, 6, 7])


def test_states_that_nobody_names_are_inputs_like_others() -> None:
    axes, obstacles = inner_axes(attending().model)
    assert not axes
    assert "keys is an input" in {str(each.product.name): each.reason for each in obstacles}["out_matmul"]


def test_states_that_begin_with_different_numbers_stay() -> None:
    lowered = attending()
    uneven = dataclasses.replace(lowered.states[1], initial=(((0.5,),), ((0.0,),)))
    axes, _ = inner_axes(lowered.model, (lowered.states[0], uneven))
    assert not axes


def test_heads_that_are_parted_in_two_ways_are_not_free() -> None:
    body = """m = MatMul(x, w)  i = Reshape(m, four)  j = Reshape(m, three)  p = Neg(i)  q = Neg(j)
        r = Reshape(p, flat)  s = Reshape(q, flat)  g = Add(r, s)  y = MatMul(g, v)"""
    more = "<int64[4] four = {0, 0, 4, 3}, int64[4] three = {0, 0, 6, 2}, int64[3] flat = {0, 0, 12}>"
    _, obstacles = inner_axes(graph(body, more))
    assert "parted into 4 and into 6" in {str(each.product.name): each.reason for each in obstacles}["y_matmul"]


IMAGES = """image = Unsqueeze(x, one)  wide = Conv<pads = [1, 1, 1, 1]>(image, front, front_b)  lit = Relu(wide)
    deep = Conv<group = 6, pads = [1, 1, 1, 1]>(lit, depth)  turned = Transpose<perm = [0, 2, 1, 3]>(deep)
    rows = Reshape(turned, flat)  y = MatMul(rows, project)"""


def images(changes: dict[str, Array] | None = None) -> ir.Model:
    """Six channels of a convolution, one by one through a depthwise one, and four numbers of each into a product."""
    shapes = {"front": (6, 1, 3, 3), "front_b": (6,), "depth": (6, 1, 3, 3), "project": (24, 4)}
    text = f"""(float[n,t,4] x, float[6,1,3,3] front, float[6] front_b, float[6,1,3,3] depth, float[24,4] project)
        => (float[n,t,4] y) <int64[1] one = {{1}}, int64[3] flat = {{0, 0, 24}}> {{ {IMAGES} }}"""
    return parse(text, random_weights(shapes) | (changes or {}))


def test_channels_of_convolutions_are_followed_to_the_product_behind() -> None:
    axes, _ = inner_axes(images())
    (axis,) = axes
    assert (axis.name, axis.count, axis.block) == ("y_matmul", 6, 4)
    assert {str(value.name): along for value, along in axis.constants} == {
        "front": 0, "front_b": 0, "depth": 0, "project": 0,
    }  # fmt: skip


def test_what_a_convolution_sums_over_is_not_free() -> None:
    body = """m = MatMul(x, w)  t = Transpose<perm = [0, 2, 1]>(m)  c = Conv(t, kernel)
        g = Transpose<perm = [0, 2, 1]>(c)  y = MatMul(g, v)  z = MatMul(m, other)"""
    text = f"""(float[n,t,4] x, float[4,12] w, float[12,12,1] kernel, float[12,4] v, float[12,4] other)
        => (float[n,t,4] y, float[n,t,4] z) {{ {body} }}"""
    model = parse(text, random_weights({"w": (4, 12), "kernel": (12, 12, 1), "v": (12, 4), "other": (12, 4)}))
    axes, obstacles = inner_axes(model)
    assert [axis.name for axis in axes] == ["y_matmul"], "what it makes is"
    assert {str(each.product.name): each.reason for each in obstacles}["z_matmul"] == "Conv c_conv sums over them"


@pytest.mark.parametrize("positions", ["turned", "added"])
def test_of_shared_keys_and_values_a_group_is_an_entry(positions: str) -> None:
    merged = MergeKvHeads(2).apply(attention(positions, related=True)).lowered
    graphs.infer_shapes(merged.model)
    axes, _ = inner_axes(merged.model, merged.states)
    assert [(axis.count, axis.block) for axis in axes if axis.count == 2] == [(2, ALL_HEADS * HEAD_SIZE // 2)]
