"""The forms "mean" and "normalize" in graphs: rows of any lengths, padded together, are as alone."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.interval import Interval
from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.graphs import ops_of
from tests.kit.offline import offline, verify_offline
from tests.kit.soundness import Node, Operand, check_node, constant

SMALL = "float[1] small = {1e-3}, float[2] pair = {1.0, 2.0}, int64[3] halves = {0, 2, -1}, float exponent = {2.0}, "
LAYER = """mu = ReduceMean<keepdims = 1>({0}, {1})  d = Sub({0}, mu)  p = Pow(d, exponent)
u = ReduceMean<keepdims = 1>(p, {1})  e = Add(u, small)  s = Sqrt(e)  """

ACCEPTED = {
    "mean": ("y = ReduceMean<keepdims = 1>(x, one)", 1),
    "mean without the axis": ("m = ReduceMean<keepdims = 0>(x, one)  y = Unsqueeze(m, one)", 1),
    "mean over time and channels": (
        "m = ReduceMean<keepdims = 1>(x, both)  y = Add(x, m)", 1,
    ),
    "pool": (CHANNELS + "y = GlobalAveragePool(c)", 1),
    "instance normalisation": (CHANNELS + "y = InstanceNormalization(c, gamma, beta)", 2),
    "layer normalisation, spelled out": (LAYER.format("x", "two") + "y = Div(d, s)", 0),
    "normalisation over time, spelled out": (LAYER.format("x", "one") + "y = Div(d, s)", 2),
    "root mean square, spelled out": (
        "p = Pow(x, exponent)  u = ReduceMean<keepdims = 1>(p, two)  e = Add(u, small)  s = Sqrt(e)  "
        "r = Reciprocal(s)  y = Mul(x, r)", 0,
    ),
    "group normalisation, as it is exported": (
        CHANNELS + "g = Reshape(c, halves)  n = InstanceNormalization(g, pair, pair)  z = Shape(c)  "
        "y = Reshape(n, z)", 2,
    ),
    "deviation over time": (
        "mu = ReduceMean<keepdims = 1>(x, one)  d = Sub(x, mu)  q = Mul(d, d)  t = ReduceSum<keepdims = 1>(q, one)  "
        "n = Shape<start = 1, end = 2>(x)  f = Cast<to = 1>(n)  w0 = Add(f, small)  u = Div(t, w0)  y = Sqrt(u)", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_padded_rows_are_as_alone(name: str) -> None:
    body, fills = ACCEPTED[name]
    text = graph(body).replace("int64[1] zero", SMALL + "int64[2] both = {1, 2}, int64[1] zero")
    outcome = verify_offline(offline(text, WEIGHTS), tolerance=1e-4)
    assert ops_of(outcome.lowered.model).count("Where") == fills, "masks only where needed"


def test_statistics_far_from_zero_keep_their_precision() -> None:
    body = CHANNELS + "f = Add(c, thousands)  y = InstanceNormalization(f, gamma, beta)"
    text = graph(body).replace("int64[1] zero", "float[1] thousands = {3000.0}, int64[1] zero")
    verify_offline(offline(text, WEIGHTS), tolerance=2e-3, shortest=2)  # of one entry rounding is all that is left


OPERATORS = {
    "two groups": (21, "y = GroupNormalization<num_groups = 2>(c, gamma, beta)"),
    "every channel": (21, "y = GroupNormalization<num_groups = 4>(c, gamma, beta)"),
    "one scale per group": (18, "y = GroupNormalization<num_groups = 2>(c, pair, pair)"),
    "mean and variance over time": (20, "y = MeanVarianceNormalization<axes = [2]>(c)"),
    "mean and variance over channels and time": (20, "y = MeanVarianceNormalization<axes = [1, 2]>(c)"),
    "root mean square": (23, "y = RMSNormalization<axis = 1>(x, gamma)"),
    "layer": (18, "y = LayerNormalization<axis = 1>(x, gamma, beta)"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_normalisation_has_the_form(name: str) -> None:
    opset, body = OPERATORS[name]
    lowered = offline(graph(CHANNELS + body).replace("int64[1] zero", SMALL + "int64[1] zero"), WEIGHTS)
    lowered.model.graph.opset_imports[""] = opset
    graphs.forget_shapes(lowered.model)
    graphs.infer_shapes(lowered.model)
    outcome = verify_offline(lowered, tolerance=1e-4, shortest=2)
    assert body.split("= ")[1].split("<")[0] not in ops_of(outcome.lowered.model)


def test_sums_of_half_precision_are_taken_in_float32() -> None:
    half = Operand(("batch", "time", 4), ir.DataType.FLOAT16, Interval(900.0, 1000.0))
    node = Node("ReduceMean", [half, constant([1], np.int64)], most={"time": 300}, least={"time": 200})
    check_node(node, tolerance=1e-3)  # the sum is beyond the largest number of half precision
