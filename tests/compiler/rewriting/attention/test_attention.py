"""attention: where it is found, and what stands against it."""

import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes.merge_kv_heads import MergeKvHeads
from compiler.rewriting.attention.attention import Found, find_attentions
from tests.kit.attention import HEADS, POSITIONS, SIZE, attention
from tests.kit.graphs import parse

TWO_PROJECTIONS = """more = MatMul(x, wo)  more_split = Reshape(more, split)
    more_heads = Transpose<perm = [0, 2, 1, 3]>(more_split)  both = Add(k_turned, more_heads)"""


def found_in(lowered: Lowered) -> Found:
    graphs.infer_shapes(lowered.model)
    return find_attentions(lowered.model)


@pytest.mark.parametrize("positions", POSITIONS)
def test_it_is_found_with_its_parts(positions: str) -> None:
    found = found_in(attention(positions))
    (each,) = found.attentions
    assert (each.heads, each.size) == (HEADS, SIZE) and not found.refused and not found.shared
    assert [str(part.value.name) for part in (each.query, each.key, each.value)] == ["q_split", "k_split", "v_split"]
    assert {part.heads_axis for part in (each.query, each.key, each.value)} == {2}
    names = [node.outputs[0].name for node in each.between]
    assert names == ["scaled", "biased", "masked", "weights"]  # the mask is no part of it
    assert each.output.outputs[0].name == "given"


def test_a_softmax_over_classes_is_none() -> None:
    text = "(float[batch,time,4] x, float[4,4] w) => (float[batch,time,4] y) { p = MatMul(x, w) y = Softmax(p) }"
    found = found_in(Lowered("tiny", parse(text), batch_axis="batch"))
    assert found == Found((), 0, ())


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"gate": "s = Sigmoid(x)  gated = Mul(flat, s)"}, "expected a projection behind, got Mul"),
        ({"gate": "gated = Identity(flat)  other = Relu(flat)  z = Add(other, x)"}, "read by more than a projection"),
        ({"key": "both", "keys": TWO_PROJECTIONS}, "expected one product with constant weights"),
        ({"key": "v_heads"}, "read by more than this attention"),
    ],
)
def test_what_stands_against_it_is_said(parts: dict[str, str], message: str) -> None:
    found = found_in(attention(**parts))  # type: ignore[arg-type]
    assert not found.attentions and message in str(found.refused[0])


def test_heads_that_share_are_counted() -> None:
    merged = MergeKvHeads(2).apply(attention(related=True)).lowered
    found = found_in(merged)
    assert found.shared == 1 and not found.attentions and not found.refused


def test_attention_in_one_operator_is_named() -> None:
    text = """(float[batch,2,time,4] q, float[batch,2,time,4] k, float[batch,2,time,4] v) => (float[batch,2,time,4] y)
        { y = Attention(q, k, v) }"""
    found = found_in(Lowered("tiny", parse(text, opset=23), batch_axis="batch"))
    assert "which canonicalize_attention leaves as it is" in str(found.refused[0])


def test_heads_that_are_merged_with_rows_are_refused_with_the_cure() -> None:
    text = """(float[both,time,4] q, float[both,4,time] k, float[both,time,4] v) => (float[both,time,4] y)
        { s = MatMul(q, k)  w = Softmax(s)  y = MatMul(w, v) }"""
    found = found_in(Lowered("tiny", parse(text), batch_axis="both"))
    assert "call it with need_weights=False" in str(found.refused[0])
