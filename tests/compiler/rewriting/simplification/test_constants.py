"""constants: what is folded, and what is left to the machine that runs it."""

import numpy as np
import pytest

from compiler.graph.runners.session import run_model
from compiler.passes.simplify import simplify_model
from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree


def test_a_default_that_a_caller_can_change_is_no_constant() -> None:
    model = parse(
        "(float[2] x, float c) => (float[2] y) { d = Neg(c)  y = Mul(x, d) }", {"c": np.array(-1, np.float32)}
    )
    model.graph.inputs.append(model.graph.initializers["c"])
    simplify_model(model)
    assert ops_of(model) == ["Neg", "Mul"]
    feeds = {"x": np.ones(2, np.float32), "c": np.array(3, np.float32)}
    assert run_model(model, feeds)["y"].tolist() == [-3, -3]


@pytest.mark.parametrize(
    "made",
    ["ConstantOfShape(size)", "Expand(one, size)", "Tile(one, size)", "Range(low, high, step)"],
)
def test_what_is_huge_is_not_computed(made: str) -> None:
    text = f"""(float[n] x) => (float[m] y) <int64[1] size = {{1000000000000}}, float[1] one = {{1}}, float low = {{0}},
        float high = {{1e12}}, float step = {{1}}> {{ a = {made}  b = Neg(a)  y = Add(b, x) }}"""
    model = parse(text)
    simplify_model(model)
    assert len(ops_of(model)) == 3


@pytest.mark.parametrize(
    "left",
    [
        "a = Div(low, less)",
        "a = Div(low, none)",
        "a = Mod(low, none)",
        "b = Cast<to = 1>(low)  c = Mul(b, b)  a = Cast<to = 6>(c)",
    ],
)
def test_what_no_standard_defines_is_left_to_the_machine(left: str) -> None:
    text = f"""(int32[n] x) => (int32[n] y) <int32 low = {{-2147483648}}, int32 less = {{-1}}, int32 none = {{0}}>
        {{ {left}  y = Add(x, a) }}"""
    model = parse(text)
    simplify_model(model)
    assert len(ops_of(model)) == 2


def test_constants_are_what_the_runtime_computes() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 64)).astype(np.float32)}
    text = """(float[8,64] x, float[8,64] w) => (float[8,64] y) { a = Softmax(w)  b = Erf(a)  c = ReduceMean(b)
        d = Exp(c)  e = LogSoftmax(w)  f = Mul(e, d)  g = Sigmoid(f)  y = Add(x, g) }"""
    simple = agree(parse(text, weights), {"x": np.zeros((8, 64), np.float32)})
    assert ops_of(simple) == ["Add"]


def test_numbers_in_half_precision_become_whole_ones() -> None:
    text = "(int32[2] x, float16[2] h) => (int32[2] y) { a = Cast<to = 6>(h)  y = Add(x, a) }"
    model = parse(text, {"h": np.array([65504, -3.5], np.float16)})
    simplify_model(model)
    assert ops_of(model) == ["Add"]
    assert run_model(model, {"x": np.zeros(2, np.int32)})["y"].tolist() == [65504, -3]
