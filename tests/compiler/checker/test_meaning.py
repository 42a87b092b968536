"""What is computed of lengths alone has to run, and to be finite, at the shortest lengths that are certified."""

import onnx_ir as ir
import pytest

from compiler.checker.graph import Graph, Rejected
from compiler.checker.meaning import require_meaning
from compiler.graph import model as graphs
from tests.kit.graphs import parse


def graph(body: str) -> Graph:
    model = parse(
        f"""(float[batch,time,4] x) => (float[p,q,r] y)
        <int64[1] one = {{1}}, int64[1] eight = {{8}}, int64[2] two = {{-1, 4}}, int64 first = {{0}},
         int64 step = {{1}}, float[3] table = {{0.0, 1.0, 2.0}}, float half = {{0.5}}, float nought = {{0.0}},
         int64[1] four = {{4}}>
        {{ n = Shape<start = 1, end = 2>(x)  m = Squeeze(n)  k = Sub(n, one)  f = Cast<to = 1>(k)  {body} }}"""
    )
    graphs.infer_shapes(model)
    return Graph(ir.serde.serialize_model(model))


REJECTED = {
    "y = Div(x, f)": "no finite value",
    "r = Reciprocal(f)  y = Mul(x, r)": "no finite value",
    "r = Log(f)  y = Mul(x, r)": "no finite value",
    "q = Div(eight, k)  r = Cast<to = 1>(q)  y = Mul(x, r)": "does not run",
    "i = Sub(k, eight)  r = Gather<axis = 0>(table, i)  y = Mul(x, r)": "does not run",
    "h = Add(f, half)  r = Acosh(h)  y = Mul(x, r)": "no finite value",
    "s = Slice(x, one, n, one)  r = Reshape(s, two)  z = Shape(s)  y = Reshape(r, z)": "does not run",
}


@pytest.mark.parametrize(("body", "words"), REJECTED.items())
def test_what_means_nothing_is_rejected(body: str, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        require_meaning(graph(body), {"time": 1, "batch": 1}, {"time": 2, "batch": 1})


ACCEPTED = {
    "numbers": ("y = Div(x, f)", 2),
    "positions": (
        "i = Range(first, m, step)  g = Cast<to = 1>(i)  l = Log(g)  u = Unsqueeze(l, one)  y = Add(x, u)",
        1,
    ),
    "positions of frames that are further apart": (
        "q = Div(n, eight)  o = Squeeze(q)  i = Range(first, o, step)  g = Cast<to = 1>(i)  "
        "l = Log(g)  u = ReduceSum(l)  y = Add(x, u)",
        8,
    ),
    "data": ("y = Log(x)", 1),
    "infinity that is handed on": ("i = Log(nought)  g = Cast<to = 1>(n)  r = Div(i, g)  y = Add(x, r)", 1),
    "a size that is the same for all inputs": (
        "c = Shape<start = 2, end = 3>(x)  l = Sub(c, four)  g = Cast<to = 1>(l)  y = Div(x, g)",
        1,
    ),
    "no frames": ("s = Slice(x, one, n, one)  r = Relu(s)  z = Shape(s)  y = Reshape<allowzero = 1>(r, z)", 1),
}


@pytest.mark.parametrize(("body", "least"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_means_something_is_accepted(body: str, least: int) -> None:
    rows = ({"time": time, "batch": 1} for time in (least, least + 1, 2 * least))
    require_meaning(graph(body), *rows)
