"""branches: If on a constant is its branch, to the bit, and nothing of the other one stays."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

X = {"x": np.array([1.0, -2.0, np.inf, -0.0], np.float32)}
SIZE = 64
"""Elements of a weight that ONNX Runtime keeps apart from small ones."""

TWO_OUTPUTS = """(float[n] x) => (float[n] y, float[n] z) <bool yes = {1}> { y, z = If(yes)<
    then_branch = t () => (float[n] b, float[n] a) { a = Neg(x) b = Abs(a) },
    else_branch = e () => (float[n] c, float[n] d) { c = Relu(x) d = Sqrt(x) }> }"""
NESTED = """(float[n] x) => (float[n] y) <bool yes = {1}, bool no = {0}> { y = If(yes)<
    then_branch = t () => (float[n] a) { b = Neg(x) a = If(no)<
        then_branch = tt () => (float[n] c) { c = Sqrt(b) },
        else_branch = te () => (float[n] c) { b_2 = Abs(b) c = Relu(b_2) }> },
    else_branch = e () => (float[n] d) { d = Relu(x) }> }"""
WEIGHTS = """(float[n] x, float[64] w8, float[64] w16) => (float[n,64] y) <bool yes = {1}, int64[1] last = {-1}> {
    u = Unsqueeze(x, last) y = If(yes)<then_branch = t () => (float[n,64] a) { a = Mul(u, w16) },
    else_branch = e () => (float[n,64] b) { c = Mul(u, w8) b = Neg(c) }> }"""


@pytest.mark.parametrize(("text", "left"), [(TWO_OUTPUTS, ["Neg", "Abs"]), (NESTED, ["Neg", "Abs", "Relu"])])
def test_every_output_is_that_of_the_chosen_branch(text: str, left: list[str]) -> None:
    assert ops_of(agree(parse(text), X)) == left


def test_nodes_without_names_get_different_ones() -> None:
    model = parse(TWO_OUTPUTS)
    for node in model.graph.all_nodes():
        node.name = None if node.graph is not model.graph else node.name
    names = [node.name for node in agree(model, X).graph]
    assert all(names) and len(set(names)) == len(names)


def test_what_the_dropped_branch_alone_reads_goes_with_it() -> None:
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal(SIZE).astype(np.float32) for name in ("w8", "w16")}
    simple = agree(parse(WEIGHTS, weights), X)
    assert ops_of(simple) == ["Unsqueeze", "Mul"]
    assert "w16" in simple.graph.initializers and "w8" not in simple.graph.initializers


def test_a_condition_on_a_size_that_is_one_number_is_a_constant() -> None:
    text = """(float[n,4] x) => (float[n,4] y) <int64 four = {4}> { s = Shape<start = 1>(x) f = Squeeze(s)
        c = Equal(f, four) y = If(c)<then_branch = t () => (float[n,4] a) { a = Neg(x) },
        else_branch = e () => (float[n,4] b) { b = Abs(x) }> }"""
    assert ops_of(agree(parse(text), {"x": np.ones((2, 4), np.float32)})) == ["Neg"]


def test_a_condition_on_data_stays() -> None:
    text = """(float[n] x, bool which) => (float[n] y) { y = If(which)<
        then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[n] b) { b = Abs(x) }> }"""
    assert ops_of(agree(parse(text), {**X, "which": np.array(False)})) == ["If"]


def test_a_name_inside_a_body_stands_for_no_second_value() -> None:
    model = parse(NESTED)
    assert {"b", "b_2", "c", "d"} <= graphs.names_taken(model.graph)
