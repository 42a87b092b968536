"""Axes that meet in a graph are one, whatever an exporter calls them."""

import numpy as np
import pytest

from compiler.front.commands.shared_axes import is_made_up, share_axes
from compiler.graph import model as graphs
from tests.kit.graphs import parse

WEIGHTS = {"w": np.zeros((1, 6, 4), np.float32), "r": np.zeros((1, 6, 2), np.float32), "last": np.array([-1])}


@pytest.mark.parametrize(
    ("inputs", "nodes", "expected"),
    [
        ("float[s0,2,4] x, float[s1,s2,4] k", "y = Concat<axis = 1>(k, x)", "s0,2,4 s0,s2,4"),
        ("float[x_dim0,4] x, float[n,4] k", "y = Add(k, x)", "n,4 n,4"),
        ("float[a,b,4] x, float[d,a] k", "m = ReduceSum<keepdims = 0>(x, last)\n n = Transpose(k)\n y = Mul(m, n)",
         "a,b,4 b,a"),
        ("float[a,s,4] x, float[b,4,t] k, float[c,u,2] v", "m = MatMul(x, k)\n y = MatMul(m, v)",
         "a,s,4 a,4,t a,t,2"),
        (
            "float[a,3,4] x, float[b,p,4] k, float[c,q,4] v",
            "i = Concat<axis = 1>(k, x)\n j = Concat<axis = 1>(v, x)\n y = Add(i, j)",
            "a,3,4 a,p,4 a,p,4",
        ),
        ("float[t,a,4] x, float[1,b,2] h", "y = GRU<hidden_size = 2>(x, w, r, , , h)", "t,a,4 1,a,2"),
        ("float[a,4] x, float[b,4] k", "y = Neg(x)\n z = Neg(k)", "a,4 b,4"),
        ("float[a,4] x, float[1,4] k", "y = Add(k, x)", "a,4 1,4"),
        ("float[a,4] x, float[b,4] k", "y = Concat<axis = 0>(k, x)", "a,4 b,4"),
    ],
)  # fmt: skip
def test_axes_that_meet_have_one_name(inputs: str, nodes: str, expected: str) -> None:
    model = parse(f"({inputs}, float w, float r, int64 last) => (float y) {{ {nodes} }}", WEIGHTS)
    share_axes(model)
    assert " ".join(",".join(map(str, graphs.dims_of(value) or ())) for value in model.graph.inputs) == expected


def test_a_name_that_somebody_gave_is_told_from_an_exporters() -> None:
    assert all(map(is_made_up, ["x_dim0", "x_dynamic_axes_2", "unk__7", "s77", "u0", "DynamicDimension.3"]))
    assert not any(map(is_made_up, ["batch", "time", "past_0_len", "samples", "dim", "s"]))
