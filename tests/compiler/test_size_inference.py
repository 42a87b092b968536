"""What the inference library is taught besides."""

import pytest

from compiler import ir as house
from compiler.ir import expression
from tests.kit.graphs import parse, random_weights

SIZES = {
    "d = Div(n, two)": "floor(time/2)",
    "m = Mul(n, two)  d = Div(m, two)": "time",
    "d = Mod(n, two)": "Mod(time, 2)",
    "m = Neg(n)  d = Neg(m)": "time",
    "d = Abs(n)": "time",
}


@pytest.mark.parametrize("body", SIZES)
def test_numbers_computed_from_sizes_are_known(body: str) -> None:
    text = f"""(float[batch,time] x) => (int64[1] d) <int64[1] two = {{2}}>
        {{ n = Shape<start = 1, end = 2>(x)  {body} }}"""
    model = parse(text)
    assert house.integers_of(model.graph.outputs[0]) == (expression(SIZES[body]),)


@pytest.mark.parametrize("start", ["Sub(zero, n)", "Sub(rows, n)"])
def test_the_last_entries_of_a_table_are_counted(start: str) -> None:
    text = f"""(float[batch,time] x, float[1,9,4] table) => (float[1,r,4] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] rows = {{9}}, int64[1] end = {{9223372036854775807}}>
        {{ n = Shape<start = 1, end = 2>(x)  from = {start}  y = Slice(table, from, end, one) }}"""
    model = parse(text, random_weights({"table": (1, 9, 4)}))
    assert house.dims_of(model.graph.outputs[0]) == (1, expression("time"), 4)


def test_an_axis_that_is_turned_round_keeps_its_size() -> None:
    model = parse(
        """(float[batch,time] x) => (float[batch,t] y)
        <int64[1] last = {-1}, int64[1] one = {1}, int64[1] end = {-9223372036854775807}>
        { y = Slice(x, last, end, one, last) }"""
    )
    assert house.dims_of(model.graph.outputs[0]) == (expression("batch"), expression("time"))


def test_an_axis_padded_by_a_computed_amount_has_a_size() -> None:
    model = parse(
        """(float[batch,time] x) => (float[batch,t] y) <int64[3] none = {0, 2, 0}, int64[1] two = {2}>
        { n = Shape<start = 1, end = 2>(x)  rest = Mod(n, two)
          pads = Concat<axis = 0>(none, rest)  y = Pad(x, pads) }"""
    )
    assert house.dims_of(model.graph.outputs[0]) == (expression("batch"), expression("time + Mod(time, 2) + 2"))
