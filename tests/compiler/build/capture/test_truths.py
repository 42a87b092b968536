"""Selections of truths are written as logic, with the source line of the selection; others stay."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.capture.truths import select_truths
from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from tests.kit.graphs import ops_of, parse

TRUTHS = """(bool[n,1] where, bool[n,4] a, bool[4] b) => (bool[n,4] y) { y = Where(where, a, b) }"""


def truths() -> ir.Model:
    model = parse(TRUTHS)
    graphs.infer_shapes(model)
    return model


def test_a_selection_of_truths_is_the_same_logic() -> None:
    model, rng = truths(), np.random.default_rng(0)
    source = graphs.source_of(next(graphs.nodes_of(model)))
    select_truths(model)
    assert ops_of(model) == ["And", "Not", "And", "Or"]
    assert source and {graphs.source_of(node) for node in model.graph} == {source}
    feed = {name: rng.random(shape) < 0.5 for name, shape in (("where", (5, 1)), ("a", (5, 4)), ("b", (4,)))}
    [got] = session_of(model).run(["y"], feed)
    assert np.array_equal(got, np.where(feed["where"], feed["a"], feed["b"]))


@pytest.mark.parametrize("kind", ["float", "int64"])
def test_selections_of_numbers_stay(kind: str) -> None:
    model = parse(f"(bool[n] where, {kind}[n] a, {kind}[n] b) => ({kind}[n] y) {{ y = Where(where, a, b) }}")
    graphs.infer_shapes(model)
    select_truths(model)
    assert ops_of(model) == ["Where"]
