"""Sizes: equal ones are recognised, quotients are exact or none, and small values are read through their producers."""

import onnx_ir as ir
import pytest
import sympy

from compiler.graph.lengths.symbolic_values import at_zero, count_of, quotient, same, symbolic_values_of
from compiler.graph.sizes.expressions import expression, normal_form, symbol
from tests.kit.graphs import node_named, parse

TIME, BATCH = symbol("time"), symbol("batch")


@pytest.mark.parametrize(
    ("size", "divisor", "expected"),
    [
        (12, 4, 3), (12, 5, None), (12, 0, None), (TIME, TIME, 1), (6 * TIME, TIME, 6), (6 * TIME, 4, None),
        (2 * BATCH * TIME, 2 * TIME, BATCH), (TIME, 2, None), (2 * TIME + 2, 2, TIME + 1), (2 * TIME + 1, 2, None),
        (TIME, 2 * TIME, None), (expression("32*batch*(time//10 + 1)"), expression("16*(time//10) + 16"), 2 * BATCH),
    ],
)  # fmt: skip
def test_quotients(size: sympy.Expr | int, divisor: sympy.Expr | int, expected: sympy.Expr | int | None) -> None:
    assert quotient(size, divisor) == expected


def test_equal_sizes_look_alike() -> None:
    assert normal_form(expression("floor((32*batch*time)/(16*time))")) == 2 * BATCH
    assert normal_form(expression("Mod(time, 2)")) == normal_form(expression("time - 2*(time//2)"))
    assert same(expression("(time + 1)//2"), expression("time - time//2"))
    assert not same(expression("(time + 1)//2"), expression("time//2"))
    assert not same(expression("(time + batch)//2"), expression("(batch + 2*time)//2"))


def test_counting() -> None:
    assert count_of(0, TIME, 1) == TIME
    assert count_of(TIME - 1, -1, -1) == TIME
    assert count_of(0, 7, 2) == 4


LINES = {
    "sum = Add(n, two)": (TIME + 2,),
    "sum = Sub(n, n)": (0,),
    "a = Cast<to = 1>(n)  b = Div(a, pair)  sum = Floor(b)": (expression("time//2"),),
    "a = Div(n, two)  sum = Reshape(a, one)": (expression("time//2"),),
    "a = Neg(n)  sum = Max(a, two)": (sympy.Max(2, -TIME),),
    "a = Concat<axis = 0>(two, n)  sum = Gather(a, zeros)": (2, 2),
    "a = Concat<axis = 0>(two, n)  sum = Slice(a, one, two)": (TIME,),
    "sum = Mod(n, two)": (TIME - 2 * sympy.floor(TIME / 2),),
    "f = Cast<to = 1>(n)  g = Cast<to = 1>(two)  h = Div(f, g)  c = Ceil(h)  sum = Cast<to = 7>(c)": (
        sympy.floor((TIME + 1) / 2),
    ),
    "sum = Identity(numbers)": (3, -1),
    "a = Cast<to = 6>(n)  sum = Cast<to = 7>(a)": (TIME,),
    "f = Cast<to = 1>(n)  g = Cast<to = 1>(two)  h = Div(f, g)  sum = Cast<to = 7>(h)": (expression("time//2"),),
    "a = Cast<to = 3>(two)  sum = Cast<to = 7>(a)": (2,),
    "sum = ReduceSum(numbers, zero)": (2,),
    "sum = ReduceProd(numbers)": (-3,),
    "sum = ReduceSum(numbers, nowhere)": (2,),
    "sum = ReduceProd<noop_with_empty_axes = 1>(numbers)": (3, -1),
    "sum = ReduceSum<noop_with_empty_axes = 1>(numbers, nowhere)": (3, -1),
}


@pytest.mark.parametrize(("lines", "expected"), LINES.items())
def test_what_small_values_hold(lines: str, expected: tuple[sympy.Expr | int, ...]) -> None:
    assert _read(lines) == expected


NARROW = [
    f"a = Cast<to = {int(dtype)}>(n)  sum = Cast<to = 7>(a)"
    for dtype in (
        ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16, ir.DataType.BOOL,
    )
]  # fmt: skip

UNKNOWN = [
    *NARROW,
    "a = Cast<to = 1>(n)  b = Cast<to = 1>(one)  c = Add(b, pair)  d = Div(a, c)  e = Mul(d, c)  sum = Floor(e)",
    "a = Cast<to = 3>(numbers)  b = Cast<to = 2>(a)  sum = Cast<to = 7>(b)",
    "sum = Add(n, given)",
    "sum = Exp(half)",
    "sum = Mul(half, half)",
    "sum = Gather(n, two)",
    "a = Unsqueeze(numbers, one)  sum = Concat<axis = 1>(a, a)",
    "a = Unsqueeze(numbers, one)  sum = Concat<axis = -1>(a, a)",
    "a = Unsqueeze(numbers, one)  b = Unsqueeze(numbers, zero)  sum = Add(a, b)",
    "a = Unsqueeze(numbers, zero)  b = Concat<axis = 0>(a, a)  sum = Slice(b, zero, one)",
]


@pytest.mark.parametrize("lines", UNKNOWN)
def test_what_is_not_known(lines: str) -> None:
    assert _read(lines) is None


def _read(lines: str) -> tuple[sympy.Expr | int, ...] | None:
    model = parse(
        f"""(float[batch,time] x, int64[1] given) => (float[a] out)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[2] zeros = {{0, 0}}, int64[2] numbers = {{3, -1}},
         int64[1] zero = {{0}}, int64[0] nowhere = {{}},
         float[1] half = {{0.5}}, float[1] pair = {{2.0}}>
        {{ n = Shape<start = 1, end = 2>(x)  {lines}  out = Cast<to = 1>(sum) }}"""
    )
    return symbolic_values_of(node_named(model, "sum").outputs[0])


def test_values_at_length_zero() -> None:
    assert (at_zero(7), at_zero(TIME - 1), at_zero(TIME / 2 + sympy.Rational(1, 2))) == (7, -1, None)
