"""fold_factors: constant factors are taken back into weights."""

import numpy as np
import pytest

from compiler.graph.stages import Array, Lowered
from compiler.passes.fold_factors import FoldFactors
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse, random_weights

SHAPES = {"w": (4, 4), "v": (4, 4), "table": (1, 4, 6), "bias": (4,), "kernel": (4, 4, 3)}

HALF = """(float[batch,6,4] x, float[4,4] w, float[4] bias) => (float[batch,6,4] y) <float half = {0.5}>
{ m = MatMul(x, w)  a = Add(m, bias)  h = Mul(a, half)  y = Add(x, h) }"""

SCORES = """(float[batch,6,4] x, float[batch,4,6] keys, float[4,4] w, float[4] bias, float[1,4,6] table)
    => (float[batch,6,6] y) <float[1] root = {8.0}, int64[4] heads = {0, 6, 2, 2}, int64[3] back = {0, 6, 4}>
{
    m = MatMul(x, w)
    q = Add(m, bias)
    parted = Reshape(q, heads)
    turned = Reshape(parted, back)
    content = MatMul(turned, keys)
    places = MatMul(turned, table)
    scores = Add(content, places)
    y = Div(scores, root)
}"""


def lowered_of(text: str, weights: dict[str, Array] | None = None) -> Lowered:
    return Lowered("tiny", parse(text, {**random_weights(SHAPES), **(weights or {})}), batch_axis="batch")


def test_half_a_product_is_a_product_with_half_the_weights() -> None:
    outcome = verify_pass(FoldFactors(), lowered_of(HALF), tolerance=0.0, steps=2)
    assert ops_of(outcome.lowered.model) == ["MatMul", "Add", "Add"]


@pytest.mark.parametrize("swapped", [False, True])
def test_scores_of_two_kinds_take_their_scale_from_one_query(*, swapped: bool) -> None:
    text = SCORES.replace("Add(content, places)", "Add(places, content)") if swapped else SCORES
    outcome = verify_pass(FoldFactors(), lowered_of(text), tolerance=0.0, steps=2)
    assert "Div" not in ops_of(outcome.lowered.model)


TURNED = """(float[batch,6,4] x, float[batch,4,6] keys, float[4,4] w, float[batch,6,2] cos, float[batch,6,2] sin)
    => (float[batch,6,6] y) <float root = {0.125}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}>
{
    q = MatMul(x, w)
    first = Slice(q, zero, two, two)  second = Slice(q, two, four, two)
    a = Mul(first, cos)  b = Mul(second, sin)  left = Sub(a, b)
    c = Mul(second, cos)  d = Mul(first, sin)  right = Add(c, d)
    turned = Concat<axis = 2>(left, right)
    scores = MatMul(turned, keys)
    y = Mul(scores, root)
}"""


def test_queries_that_positions_turn_take_the_scale_of_their_scores() -> None:
    outcome = verify_pass(FoldFactors(), lowered_of(TURNED), tolerance=0.0, steps=2)
    assert ops_of(outcome.lowered.model).count("Mul") == 4


def test_a_join_with_something_that_cannot_be_multiplied_stays() -> None:
    joined = TURNED.replace("Concat<axis = 2>(left, right)", "Concat<axis = 2>(left, cos)")
    verify_untouched(FoldFactors(), lowered_of(joined))


def test_a_convolution_takes_it_with_its_bias() -> None:
    text = """(float[batch,4,6] x, float[4,4,3] kernel, float[4] bias) => (float[batch,4,4] y) <float half = {0.25}>
    { c = Conv(x, kernel, bias)  n = Neg(c)  y = Mul(half, n) }"""
    outcome = verify_pass(FoldFactors(), lowered_of(text), tolerance=0.0, steps=2)
    assert ops_of(outcome.lowered.model) == ["Conv", "Neg"]


def test_a_gemm_takes_it_with_its_bias() -> None:
    text = """(float[batch,4] x, float[4,4] w, float[4] bias) => (float[batch,4] y) <float half = {0.5}>
    { c = Gemm<alpha = 0.5, transB = 1>(x, w, bias)  y = Mul(c, half) }"""
    verify_pass(FoldFactors(), lowered_of(text), tolerance=0.0, steps=2)


def test_other_factors_round_the_weights() -> None:
    text = HALF.replace("{0.5}", "{0.3}")
    outcome = verify_pass(FoldFactors(), lowered_of(text), tolerance=1e-6, steps=2)
    assert outcome.rewritten == 1


def test_factors_one_behind_the_other_go_back_one_after_the_other() -> None:
    text = HALF.replace("h = Mul(a, half)", "g = Mul(a, half)  h = Div(g, half)")
    outcome = verify_pass(FoldFactors(), lowered_of(text), tolerance=0.0, steps=2)
    assert outcome.rewritten == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y = Add(x, h)", "y = Add(a, h)"),
        ("y = Add(x, h)", "z = Add(x, h)  y = Add(z, m)"),
        ("a = Add(m, bias)", "a = Add(m, x)"),
        ("a = Add(m, bias)", "a = Sigmoid(m)"),
        ("m = MatMul(x, w)", "m = Relu(x)"),
        ("{0.5}", "{0.0}"),
        ("<float half = {0.5}>", "<float[1,1,1,1] half = {0.5}>"),
    ],
    ids=["result read twice", "product read twice", "an input added", "not linear", "an input", "zero", "more axes"],
)
def test_others_stay(old: str, new: str) -> None:
    text = HALF.replace(old, new)
    if "1,1,1" in text:
        text = text.replace("=> (float[batch,6,4] y)", "=> (float[1,batch,6,4] y)")
    verify_untouched(FoldFactors(), lowered_of(text))


def test_a_product_with_itself_stays() -> None:
    text = """(float[batch,4,4] x, float[4,4] w) => (float[batch,4,4] y) <float half = {0.5}>
    { q = MatMul(x, w)  s = MatMul(q, q)  y = Mul(s, half) }"""
    verify_untouched(FoldFactors(), lowered_of(text))


@pytest.mark.parametrize("number", [3e38, 2e-38], ids=["overflow", "too small to be normal"])
def test_weights_that_would_be_lost_stay(number: float) -> None:
    factor = 2.0 if number > 1 else 0.25
    lowered = lowered_of(HALF.replace("{0.5}", f"{{{factor}}}"), {"w": np.full((4, 4), number, np.float32)})
    verify_untouched(FoldFactors(), lowered)


def test_large_weights_that_others_read_are_not_doubled() -> None:
    text = """(float[batch,128] x, float[128,128] w) => (float[batch,128] y) <float half = {0.5}>
    { q = MatMul(x, w)  r = MatMul(q, w)  y = Mul(r, half) }"""
    weights = random_weights({"w": (128, 128)})
    verify_untouched(FoldFactors(), lowered_of(text, weights))


def test_a_way_that_others_read_breaks_the_contract_if_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.fold_factors._Way.is_closed", lambda *_: True)
    with pytest.raises(ContractBroken, match="meaning"):
        verify_pass(FoldFactors(), lowered_of(HALF.replace("y = Add(x, h)", "y = Add(a, h)")), tolerance=1e-6, steps=2)
