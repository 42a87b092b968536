"""Sizes that a recipe writes for axes that the graph makes one are told apart before anything runs."""

import re

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.capture.meeting_sizes import meetings_in, require_sizes_that_meet
from compiler.errors import Location, RecipeError
from compiler.graph import model as graphs
from tests.kit.graphs import parse

CACHE = "(float[a,3,4] x, float[b,c,4] cache) => (float y) { y = Concat<axis = 1>(cache, x) }"
BIAS = "(float[a,t,4] x, float[1,5,4] bias) => (float y) { y = Add(x, bias) }"
SUM = "(float[a,4] x, float[b,4] z) => (float y) { y = Add(x, z) }"
SCORES = "(float[a,s,4] q, float[b,4,t] k, float[b,u,2] v) => (float y) { w = MatMul(q, k)\n y = MatMul(w, v) }"
RECURRENT = (
    "(float[t,a,4] x, float[1,b,2] h, float w, float r) => (float y) { y = GRU<hidden_size = 2>(x, w, r, , , h) }"
)
WEIGHTS = {"w": np.zeros((1, 6, 4), np.float32), "r": np.zeros((1, 6, 2), np.float32)}


def hold(text: str, *shapes: list[int | str]) -> ir.Model:
    model = parse(text, WEIGHTS)
    names = [str(value.name) for value in model.graph.inputs]
    require_sizes_that_meet(model, dict(zip(names, shapes, strict=True)), Location(graph="net"))
    return model


@pytest.mark.parametrize(
    ("text", "shapes", "words"),
    [
        (CACHE, ([1, 3, 4], [8, "c", 4]), "got 8 (written for cache) and 1 (written for x)"),
        (CACHE, (["batch", 3, 4], [8, "c", 4]), "got 8 (written for cache) and batch (written for x)"),
        (BIAS, (["batch", 8, 4], [1, 5, 4]), "got 8 (written for x) and 5"),
        (SUM, ([2, 4], [3, 4]), "got 2 (written for x) and 3 (written for z)"),
        (SCORES, ([1, 2, 4], [1, 4, 6], [1, 7, 2]), "got 6 (written for k) and 7 (written for v)"),
        (RECURRENT, ([5, 1, 4], [1, 2, 2]), "got 1 (written for x) and 2 (written for h)"),
    ],
)
def test_a_clash_is_the_recipes_and_names_node_and_axes(text: str, shapes: list[list[int | str]], words: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(words)) as caught:
        hold(text, *shapes)
    assert caught.value.cure and caught.value.place.node and caught.value.place.op and caught.value.place.source


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (CACHE, ([8, 3, 4], [8, "c", 4])),
        (CACHE, (["batch", 3, 4], ["rows", "c", 4])),
        (BIAS, (["batch", 1, 4], [1, 5, 4])),
        (SUM, ([1, 4], [3, 4])),
        (SUM, (["batch", 4], [1, 4])),
        (SCORES, ([1, 2, 4], [3, 4, 6], [3, 6, 2])),
    ],
)
def test_sizes_that_may_meet_pass_and_the_graph_stays_as_it_was(text: str, shapes: list[list[int | str]]) -> None:
    before = graphs.serialized(parse(text, WEIGHTS))
    assert graphs.serialized(hold(text, *shapes)) == before


def test_a_size_that_is_computed_meets_as_well() -> None:
    text = """(float[a,p,4] x, float[a,q,4] z, float[a,2,4] more) => (float y) {
        m = Concat<axis = 1>(x, more)  n = Concat<axis = 1>(z, more)  y = Mul(m, n) }"""
    assert ("p", "q") in [meeting.one_for_one() for meeting in meetings_in(parse(text))]
    with pytest.raises(RecipeError, match="got 7 and 8"):
        hold(text, ["a", 5, 4], ["a", 6, 4], ["a", 2, 4])
