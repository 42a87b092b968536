"""What padding writes is right for every value: infinities, NaN and numbers without end, in valid places and beside.

Each graph runs padded, its rows together, on valid entries that are zeros, infinities, huge, or NaN, against every row
alone. None of them may take a finite range for granted that the certificate does not speak of.
"""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import copy_of
from tests.kit.offline import Edges, offline, verify_offline

X = "float[batch,time,4] x"
EVERY: tuple[Edges, ...] = ("none", "zeros", "ties", "infinities", "NaN")
NO_NAN: tuple[Edges, ...] = ("none", "zeros", "ties", "huge", "infinities")

SEARCHES = {
    "the largest of logarithms": ("int64[batch,4] y", "l = Log(x)  y = ArgMax<axis = 1, keepdims = 0>(l)"),
    "the last of the largest": (
        "int64[batch,1,4] y",
        "a = Abs(x)  l = Log(a)  y = ArgMax<axis = 1, select_last_index = 1>(l)",
    ),
    "the last of the smallest, apart": (
        "int64[batch,4] y",
        "a = Abs(x)  l = Log(a)  n = Neg(l)  y = ArgMin<axis = 1, keepdims = 0, select_last_index = 1>(n)",
    ),
    "the smallest after an overflow": (
        "int64[batch,4] y",
        "a = Abs(x)  e = Add(a, a)  s = Mul(e, e)  q = Mul(s, s)  o = Exp(q)  y = ArgMin<axis = 1, keepdims = 0>(o)",
    ),
}
"""Positions that point into the padding where it ties with infinities."""

VALUES = {
    "softmax of logarithms": ("l = Log(x)  y = Softmax<axis = 1>(l)", EVERY),
    "logarithms of probabilities": ("y = LogSoftmax<axis = 1>(x)", EVERY),
    "logarithm of a sum of exponentials": ("m = ReduceLogSumExp<keepdims = 1>(x, one)  y = Sub(x, m)", EVERY),
    "mean": ("m = ReduceMean<keepdims = 1>(x, one)  y = Add(m, x)", EVERY),
    "sum": ("m = ReduceSum<keepdims = 1>(x, one)  y = Add(m, x)", EVERY),
    "norm": ("m = ReduceL2<keepdims = 1>(x, one)  y = Add(m, x)", EVERY),
    "product": ("m = ReduceProd<keepdims = 1>(x, one)  y = Add(m, x)", EVERY),
    "the largest of logarithms": ("a = Abs(x)  l = Log(a)  y = ReduceMax<keepdims = 1>(l, one)", NO_NAN),
    "the smallest after an overflow": ("e = Exp(x)  n = Exp(e)  y = ReduceMin<keepdims = 1>(n, one)", NO_NAN),
    "one of the largest": ("l = Abs(x)  h = Log(l)  p = Hardmax<axis = 1>(h)  y = Add(x, p)", NO_NAN),
    "largest in windows": (
        "t = Transpose<perm = [0, 2, 1]>(x)  l = Abs(t)  g = Log(l)"
        "  p = MaxPool<kernel_shape = [3], pads = [1, 1]>(g)  y = Transpose<perm = [0, 2, 1]>(p)",
        NO_NAN,
    ),
    "average in windows": (
        "t = Transpose<perm = [0, 2, 1]>(x)  p = AveragePool<kernel_shape = [3], pads = [1, 1]>(t)"
        "  y = Transpose<perm = [0, 2, 1]>(p)",
        EVERY,
    ),
    "sums from the end": ("y = CumSum<reverse = 1>(x, single)", EVERY),
    "normalised over time": (
        "t = Transpose<perm = [0, 2, 1]>(x)  n = InstanceNormalization(t, scale, bias)"
        "  y = Transpose<perm = [0, 2, 1]>(n)",
        EVERY,
    ),
    "attention that clips": (
        "t = Transpose<perm = [0, 2, 1]>(x)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  a = MatMul(p, x)"
        "  c = Clip(a, low, high)  u = Transpose<perm = [0, 2, 1]>(c)  r = MatMul(c, u)"
        "  w = Softmax<axis = -1>(r)  y = MatMul(w, c)",
        EVERY,
    ),
    "convolution of what is clipped": (
        "t = Transpose<perm = [0, 2, 1]>(x)  e = Exp(t)  o = Exp(e)  d = Conv<pads = [1, 1]>(o, kernel)"
        "  c = Clip(d, low, high)  f = Conv<pads = [1, 1]>(c, kernel)  y = Transpose<perm = [0, 2, 1]>(f)",
        EVERY,
    ),
}  # fmt: skip
"""Values that take in padding where a finite number was put for an infinity, or 0 met one."""

WEIGHTS: dict[str, np.ndarray] = {
    "one": np.array([1], np.int64),
    "single": np.array(1, np.int64),
    "scale": np.ones(4, np.float32),
    "bias": np.zeros(4, np.float32),
    "low": np.array(-6, np.float32),
    "high": np.array(6, np.float32),
    "kernel": np.arange(48, dtype=np.float32).reshape(4, 4, 3) / 50 - 0.4,
}


def given(body: str) -> dict[str, np.ndarray]:
    """The constants that a graph names."""
    words = set(body.replace(",", " ").replace("(", " ").replace(")", " ").split())
    return {name: array for name, array in WEIGHTS.items() if name in words}


def inputs(body: str) -> str:
    kinds = {"i": "int64", "f": "float"}
    typed = [f"{kinds[a.dtype.kind]}[{','.join(map(str, a.shape))}] {name}" for name, a in given(body).items()]
    return ", ".join([X, *typed])


@pytest.mark.parametrize(("output", "body"), SEARCHES.values(), ids=SEARCHES)
def test_no_search_points_into_the_padding(output: str, body: str) -> None:
    verify_offline(offline(f"({X}) => ({output}) {{ {body} }}"), edges=NO_NAN, seeds=6)


@pytest.mark.parametrize(("body", "edges"), VALUES.values(), ids=VALUES)
def test_values_are_those_of_the_row_alone(body: str, edges: tuple[Edges, ...]) -> None:
    frames = "1" if "y = Reduce" in body else "time"
    text = f"({inputs(body)}) => (float[batch,{frames},4] y) {{ {body} }}"
    verify_offline(offline(text, given(body)), edges=edges, seeds=6)


TOP = "(float[batch,time,4] x, int64[1] k) => (float[batch,2,4] y, int64[batch,2,4] i)"


@pytest.mark.parametrize("largest", [0, 1])
def test_the_best_few_are_valid_ones(largest: int) -> None:
    sign = "l = Log(x)" if largest else "n = Log(x)  l = Neg(n)"
    body = f"{sign}  y, i = TopK<axis = 1, largest = {largest}>(l, k)"
    graph = offline(f"{TOP} {{ {body} }}", {"k": np.array([2], np.int64)})
    verify_offline(graph, edges=NO_NAN, seeds=6)


RESIZED = {
    "rows of samples": ("float[batch,time] x", "float[batch,long] y", [1, 2], ""),
    "rows of channels": ("float[batch,4,time] x", "float[batch,4,long] y", [1, 1, 2], ""),
    "every second": ("float[batch,4,time] x", "float[batch,4,long] y", [1, 1, 0.5], ""),
    "along one axis": ("float[batch,4,time] x", "float[batch,4,long] y", [2], ", axes = [2]"),
    "cubic": ("float[batch,time] x", "float[batch,long] y", [1, 2], ", mode = 'cubic'"),
}


@pytest.mark.parametrize(("given", "result", "scales", "more"), RESIZED.values(), ids=RESIZED)
def test_rows_are_no_neighbours_of_each_other(given: str, result: str, scales: list[float], more: str) -> None:
    mode = more.replace("'", '"') if "mode" in more else f', mode = "linear"{more}'
    how = 'coordinate_transformation_mode = "half_pixel"' + mode
    graph = offline(
        f"({given}, float[{len(scales)}] s) => ({result}) {{ y = Resize<{how}>(x, , s) }}",
        {"s": np.array(scales, np.float32)},
    )
    outcome = verify_offline(graph, edges=("none", "zeros"), seeds=2)
    assert any(
        need.get("rewrite") == "resize_apart" for step in outcome.records[0]["records"] for need in step["needs"]
    )
    session, x = open_session(graphs.serialized(outcome.lowered.model)), np.ones(sized(given), np.float32)
    lengths = np.array([6, 5, 6], np.int64)
    (before,) = session.run(None, {"x": x, "time_length": lengths})
    for beside in (np.nan, np.inf, -np.inf):
        x[1] = beside
        (after,) = session.run(None, {"x": x, "time_length": lengths})
        assert np.array_equal(after[[0, 2]], before[[0, 2]])


def sized(given: str) -> list[int]:
    """The shape of three rows of six slots."""
    return [{"batch": 3, "time": 6}.get(dim) or int(dim) for dim in given[6:-3].split(",")]


def test_what_is_taken_for_granted_stands_in_the_certificate() -> None:
    graph = offline(f"({X}, int64[1] k) => (float[batch,1,4] y) {{ y = ReduceMax(x, k) }}", {"k": WEIGHTS["one"]})
    (proof,) = PadAxes().apply(copy_of(graph)).records
    assert [step["assumes"] for step in proof["records"]] == [[[0, "no NaN"]]]
    assert any("no valid entry is NaN in 'x'" in each for each in proof["assumes"])
    assert not any("2^40" in each or "e+12" in each for each in proof["assumes"])


def test_nothing_else_is_taken_for_granted() -> None:
    graph = offline(f"({X}) => (int64[batch,4] y) {{ y = ArgMax<axis = 1, keepdims = 0>(x) }}")
    (proof,) = PadAxes().apply(graph).records
    assert len(proof["assumes"]) == 1 and "true length" in proof["assumes"][0]
