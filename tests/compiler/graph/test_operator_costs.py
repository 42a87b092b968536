"""What operators cost: counted by hand beside counted from the graph."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.operator_costs import Rates, bytes_moved, bytes_of, elements_of, multiply_adds
from tests.kit.graphs import node_named, parse, random_weights

WEIGHTS = {
    "w": (4, 8), "g": (8, 4), "k": (6, 4, 3), "d": (4, 1, 3), "t": (4, 6, 3), "rw": (1, 15, 4), "rr": (1, 15, 5),
}  # fmt: skip

CASES = {
    "y = MatMul(x, w)": 10 * 8 * 4,
    "f = Reshape(x, flat)  y = Gemm<transB = 1>(f, g)": 10 * 8 * 4,
    "f = Reshape(x, flat)  y = Gemm<transA = 1>(f, f)": 10 * 4 * 4,
    "c = Transpose<perm = [0, 2, 1]>(x)  y = Conv(c, k)": (10 - 2) * 6 * 4 * 3,
    "c = Transpose<perm = [0, 2, 1]>(x)  y = Conv<group = 4>(c, d)": (10 - 2) * 4 * 3,
    "c = Transpose<perm = [0, 2, 1]>(x)  y = ConvTranspose(c, t)": 10 * 4 * 6 * 3,
    'y = Einsum<equation = "btc,cd->btd">(x, w)': 10 * 4 * 8,
    'y = Einsum<equation = "...c,cd">(x, w)': 10 * 4 * 8,
    'y = Einsum<equation = "b...c,cd->b...d">(x, w)': 10 * 4 * 8,
    "y, h = GRU<hidden_size = 5>(x, rw, rr)": 10 * (15 * 4 + 15 * 5),
    "y = Relu(x)": 0,
}


def tiny(body: str) -> ir.Model:
    inputs = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in WEIGHTS.items())
    text = f"(float[batch,time,4] x, {inputs}) => (float[a,b,c] y) <int64[2] flat = {{-1, 4}}> {{ {body} }}"
    return parse(text, random_weights(WEIGHTS))


@pytest.mark.parametrize("body", CASES)
def test_multiply_adds_are_those_of_the_schoolbook(body: str) -> None:
    assert multiply_adds(node_named(tiny(body), "y"), {"time": 10}) == CASES[body]


def test_work_grows_with_the_axis_that_is_named() -> None:
    node = node_named(tiny("y = MatMul(x, w)"), "y")
    assert multiply_adds(node, {"time": 20, "batch": 3}) == 6 * multiply_adds(node, {"time": 10})


def test_bytes_are_those_of_activations_read_and_written() -> None:
    model = tiny("y = MatMul(x, w)")
    assert bytes_moved(node_named(model, "y"), {"time": 10}) == 4 * 10 * (4 + 8)


def test_a_view_moves_nothing() -> None:
    assert bytes_moved(node_named(tiny("y = Reshape(x, flat)"), "y"), {"time": 10}) == 0


def test_small_types_take_small_room() -> None:
    values = [ir.val("a", ir.DataType.INT8, ["n", 3]), ir.val("b", ir.DataType.INT4, [3]), None]
    assert bytes_of(values, {"n": 5}) == 15 + 2
    assert elements_of(values[0], {"n": 5}) == 15  # type: ignore[arg-type]


def test_the_slower_of_arithmetic_and_memory_counts() -> None:
    rates = Rates(multiply_adds=1e9, bytes=1e9)
    assert (rates.picoseconds(3, 2), rates.picoseconds(2, 3)) == (3000, 3000)
    assert np.isclose(Rates().picoseconds(137_000, 0), 1e6)
