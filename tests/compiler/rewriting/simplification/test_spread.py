"""spread: what a value repeats is found along some axes, and not along those in which it differs."""

import pytest

from compiler.graph import model as graphs
from compiler.rewriting.simplification.rules import Candidate
from compiler.rewriting.simplification.spread import number_of, spread_from
from tests.kit.graphs import parse

SPREAD = {
    "a vector": ("y = Expand(v, s)", [0, 1], "v"),
    "a vector, along its own axis": ("y = Expand(v, s)", [2], None),
    "turned in front of it": ("e = Expand(v, s)  y = Transpose<perm = [1, 0, 2]>(e)", [0, 1], "v"),
    "turned with it": ("e = Expand(v, s)  y = Transpose<perm = [2, 1, 0]>(e)", [1, 2], None),
    "a column": ("e = Expand(c, s)  y = Identity(e)", [0], None),
    "what is fed": ("y = Add(x, x)", [0], None),
}


@pytest.mark.parametrize("name", SPREAD)
def test_spread_from(name: str) -> None:
    body, axes, wanted = SPREAD[name]
    text = f"(float[2,3,4] x, float[4] v, float[3,1] c) => (float[o] y) {{ s = Shape(x)  {body} }}"
    candidate = _last(text)
    found = spread_from(candidate, candidate.node.outputs[0], axes)
    assert (None if found is None else found.name) == wanted


NUMBERS = {
    "a scalar that is repeated": ("y = Expand(one, s)", True),
    "filled": ("y = ConstantOfShape<value = float[1] {2.0}>(s)", True),
    "equal entries": ("y = Constant<value = float[2] {1.5, 1.5}>()", True),
    "zeros of both signs": ("y = Constant<value = float[2] {0.0, -0.0}>()", False),
    "a cut of it": ("e = Expand(one, s)  y = Slice(e, at, to)", True),
    "a vector": ("y = Expand(v, s)", False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_number_of(name: str) -> None:
    body, is_number = NUMBERS[name]
    text = f"""(float one, float[4] v, int64[3] s) => (float[o] y)
    <int64[1] at = {{0}}, int64[1] to = {{1}}> {{ {body} }}"""
    candidate = _last(text)
    assert (number_of(candidate, candidate.node.outputs[0]) is not None) == is_number


def _last(text: str) -> Candidate:
    model = parse(text)
    graphs.infer_shapes(model)
    return Candidate(model, list(model.graph)[-1], "test", {})
