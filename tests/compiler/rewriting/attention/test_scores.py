"""scores: what lies between the two products of an attention."""

import math

import numpy as np
import onnx_ir as ir
import pytest

from compiler.rewriting.attention.scores import Scores, read_scores, weights_for_values
from tests.kit.graphs import node_named, parse

TEXT = """(float[b,2,3,4] q, float[b,2,4,5] k, float[b,2,5,4] v, float[b,2,3,5] bias, float[5,4] w)
=> (float[b,2,3,4] y)
<float half = {{0.5}}, float four = {{4}}, float far = {{-1e9}}, float zero = {{0}}, float[2] pair = {{1, 2}}> {{
    seen = Greater(bias, zero)  raw = MatMul(q, k)  {steps}  {end} }}"""
END = "p = Softmax<axis = -1>(s)  y = MatMul(p, v)"


def softmax_of(steps: str, end: str = END) -> ir.Node:
    return node_named(parse(TEXT.format(steps=steps, end=end), {"w": np.ones((5, 4), np.float32)}), "p")


def read(steps: str, end: str = END) -> Scores:
    found = read_scores(softmax_of(steps, end))
    assert isinstance(found, Scores), found
    return found


def test_steps_lie_in_the_order_in_which_they_are_computed() -> None:
    found = read("a = Mul(half, raw)  b = Add(bias, a)  c = Where(seen, b, far)  s = Div(c, four)")
    assert [step.node.op_type for step in found.steps] == ["Mul", "Add", "Where", "Div"]
    assert [step.other.name for step in found.steps] == ["half", "bias", "seen", "four"]
    assert found.product.outputs[0].name == "raw" and found.context.outputs[0].name == "y"


def test_factors_in_front_and_behind_are_told_apart() -> None:
    found = read("a = Mul(half, raw)  c = Where(seen, a, far)  s = Div(c, four)")
    assert (found.scale, found.factor_from(1), found.factor_from(3)) == (0.125, 0.25, 1.0)
    assert found.fills == (-2.5e8,)


def test_nothing_between_is_a_scale_of_one() -> None:
    found = read("s = Mul(raw, half)")
    assert (found.masks, found.scale, found.clears) == ((), 0.5, None)
    assert math.isclose(found.factor_from(1), 1.0)


def test_of_two_products_the_one_of_computed_values_holds_the_scores() -> None:
    table = "t = MatMul(q, k)  u = Neg(t)  s = Add(u, raw)"
    assert read(table).product.outputs[0].name == "raw"


CLEARED = "p = Softmax<axis = -1>(s)  c = Where(seen, p, zero)  y = MatMul(c, v)"


def test_weights_are_cleared_by_the_condition_that_hides_scores() -> None:
    found = read("s = Where(seen, raw, far)", CLEARED)
    assert found.clears is not None and found.clears.outputs[0].name == "c"


@pytest.mark.parametrize(
    ("steps", "end", "reason"),
    [
        ("s = Mul(raw, half)", CLEARED, "got Where"),
        ("s = Where(seen, raw, far)", CLEARED.replace("zero)", "half)"), "got Where"),
        ("s = Where(seen, raw, far)", END + " x = Neg(p)", "got MatMul, Neg"),
        ("s = Where(seen, raw, far)  x = Neg(raw)", END, "raw is read by more"),
        ("s = Where(seen, far, raw)", END, "Where lies between"),
        ("s = Where(seen, raw, bias)", END, "Where lies between"),
        ("s = Div(half, raw)", END, "Div lies between"),
        ("s = Mul(raw, bias)", END, "Mul lies between"),
        ("s = Mul(raw, half)", END.replace("axis = -1", "axis = 1"), "along the last axis"),
        ("s = Neg(bias)", END, "Neg lies between"),
        ("s = Mul(bias, half)", END, "got none"),
    ],
)
def test_others_are_told_why(steps: str, end: str, reason: str) -> None:
    found = read_scores(softmax_of(steps, end))
    assert isinstance(found, str) and reason in found


def test_the_product_behind_is_found_through_what_may_lie_between() -> None:
    coded = "p = Softmax<axis = -1>(s)  c = QuantizeLinear(p, half)  d = DequantizeLinear(c, half)  y = MatMul(d, v)"
    softmax = softmax_of("s = Neg(raw)", coded)
    reader = weights_for_values(softmax)
    assert reader is not None and reader.outputs[0].name == "y"
    parted = "p = Softmax<axis = -1>(s)  a, c = Split<axis = -1>(p, pair)  y = MatMul(c, v)"
    assert weights_for_values(softmax_of("s = Neg(raw)", parted)) is not None
    assert weights_for_values(softmax_of("s = Neg(raw)", END.replace("p, v", "p, w"))) is None
