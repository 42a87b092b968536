"""Axes that are padded in neither program are taken as long as the original needs, and excuse nothing else."""

import dataclasses
import json
from typing import Any

import onnx_ir as ir
import pytest

from compiler.checker.check import check
from compiler.checker.free_axes import free_size
from compiler.checker.graph import Graph, Rejected
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import random_weights
from tests.kit.offline import offline

BODIES = {
    "a convolution": ("c = Conv(t, k)  a = ReduceMean(c, two)  m = ReduceMean(a, one)  y = Mul(x, m)", 5),
    "a maximum over five": (
        "c = MaxPool<kernel_shape = [5]>(t)  a = ReduceMax(c, two)  m = ReduceMax(a, one)  y = Mul(x, m)",
        5,
    ),
    "all but the first four": ("s = Slice(z, four, end, one)  m = ReduceMax(s, one)  y = Mul(x, m)", 5),
    "the fourth": ("m = Gather<axis = 1>(z, three)  y = Mul(x, m)", 4),
    "the four largest": ("a, i = TopK<axis = 1>(z, four)  m = ReduceMax(a, one)  y = Mul(x, m)", 4),
    "whole chunks": (
        """q = Div(n, three)  v = Mul(q, three)  s = Slice(z, zero, v, one)  l = Concat<axis = 0>(rows, q, three, four)
        c = Reshape(s, l)  a = ReduceMax<keepdims = 0>(c, one)  m = ReduceMax(a, one)  y = Mul(x, m)""",
        3,
    ),
    "a number that divides": ("d = Sub(n, two)  f = Cast<to = 1>(d)  r = Reciprocal(f)  y = Mul(x, r)", 3),
    "anything": ("m = ReduceMean(z, one)  y = Mul(x, m)", 2),
}


def graph_of(body: str) -> Lowered:
    """A graph with a padded input and one that has an axis of its own."""
    return offline(
        f"""(float[batch,time,1] x, float[batch,other,4] z, float[4,4,5] k) => (float[p,q,r] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
         int64[1] four = {{4}}, int64[1] end = {{9223372036854775807}}>
        {{ t = Transpose<perm = [0, 2, 1]>(z)  n = Shape<start = 1, end = 2>(z)  rows = Shape<start = 0, end = 1>(z)
           {body} }}""",
        random_weights({"k": (4, 4, 5)}),
    )


def padded(origin: Lowered) -> tuple[Any, Any, dict[str, Any]]:
    """Both programs and the certificate."""
    graphs.infer_shapes(origin.model)
    outcome = PadAxes().apply(dataclasses.replace(origin, model=graphs.clone(origin.model)))
    before, after = (ir.serde.serialize_model(each.model) for each in (origin, outcome.lowered))
    return before, after, json.loads(json.dumps(outcome.records[0]))


@pytest.mark.parametrize(("body", "least"), BODIES.values(), ids=BODIES)
def test_a_free_axis_is_as_long_as_the_original_needs(body: str, least: int) -> None:
    # regression: two entries were tried, at which some models do not run, and a right certificate was rejected
    before, after, certificate = padded(graph_of(body))
    check(before, after, certificate)

    def row_of(more: int, size: int) -> dict[str, int]:
        return {"batch": 1, "time": 1 + more, "other": size}

    assert free_size(Graph(before), {"other"}, row_of) == least


def test_a_shortest_length_is_refuted_beside_a_free_axis() -> None:
    body = """b = Shape<start = 1, end = 2>(x)  d = Sub(b, two)  f = Cast<to = 1>(d)  c = Conv(t, k)
        e = ReduceMean(c, two)  m = ReduceMean(e, one)  a = Mul(x, m)  y = Div(a, f)"""
    before, after, certificate = padded(graph_of(body))
    check(before, after, certificate)
    certificate["minimum"]["time"] -= 1
    with pytest.raises(Rejected, match="no finite value"):
        check(before, after, certificate)


def test_a_graph_that_never_runs_is_rejected_at_the_size_tried_first() -> None:
    body = "d = Sub(n, n)  f = Cast<to = 1>(d)  r = Reciprocal(f)  g = Sub(n, n)  h = Div(n, g)  y = Mul(x, r)"
    _, after, certificate = padded(graph_of("m = ReduceMean(z, one)  y = Mul(x, m)"))
    never = ir.serde.serialize_model(graph_of(body).model)
    with pytest.raises(Rejected, match="'other': 2"):
        check(never, after, certificate)
