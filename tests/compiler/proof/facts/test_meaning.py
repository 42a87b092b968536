"""The lengths from which on numbers of lengths divide by no 0 and choose entries that are there."""

import onnx_ir as ir
import pytest
import sympy

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fact
from compiler.proof.facts.layout import Side
from compiler.proof.facts.meaning import Known, legal_from, needs_of, needs_of_graph
from tests.kit.graphs import node_named, parse

TIME = graphs.symbol("time")


def case(body: str, *facts: Fact, side: Side = Side.LEFT) -> Case:
    model = parse(
        f"""(float[batch,time,4] x, float[time] z) => (float[p] y)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] minus = {{-1}}, int64[1] seven = {{7}},
         int64[1] nine = {{9}}, int64[1] nothing = {{0}}, int64 first = {{0}}, int64 step = {{1}},
         float[3] table = {{0.0, 1.0, 2.0}}, float[1] half = {{0.5}}>
        {{ n = Shape<start = 1, end = 2>(x)  m = Squeeze(n)  f = Cast<to = 1>(n)  {body} }}"""
    )
    graphs.infer_shapes(model)
    return Case(node_named(model, "y"), facts, "batch", {"time": side})


PLAIN = Fact()

ROWS = "b = Shape<end = 1>(x)  e = Expand(n, b)"
"""The length, once for every row: what a sum along a mask of ones comes to."""

NEEDS = {
    "a length": ("y = Div(z, f)", (PLAIN, NUMBER), ()),
    "a length less seven": ("k = Sub(n, seven)  y = Div(nine, k)", (PLAIN, NUMBER), (TIME - 7,)),
    "what falls": ("k = Sub(seven, n)  g = Min(k, two)  y = Div(nine, k)", (PLAIN, NUMBER), (TIME - 7,)),
    "at least one": ("r = Mod(n, seven)  k = Max(r, one)  y = Div(nine, k)", (PLAIN, NUMBER), ()),
    "a product": ("k = Sub(n, seven)  g = Mul(k, n)  y = Mod(nine, g)", (PLAIN, NUMBER), (TIME - 7,)),
    "a log": ("k = Sub(n, seven)  g = Cast<to = 1>(k)  y = Log(g)", (NUMBER,), (TIME - 7,)),
    "a root": ("k = Sub(n, seven)  g = Cast<to = 1>(k)  y = Sqrt(g)", (NUMBER,), (TIME - 6,)),
    "a number that is computed": ("k = Sub(f, half)  g = Floor(k)  y = Reciprocal(g)", (NUMBER,), (TIME - 1,)),
    "a power": ("k = Sub(n, two)  g = Cast<to = 1>(k)  y = Pow(g, half)", (NUMBER, PLAIN), (TIME - 1,)),
    "rows of a table": ("k = Sub(n, nine)  y = Gather(table, k)", (PLAIN, NUMBER), (TIME - 5,)),
    "a size that is told": (
        "k = Sub(n, two)  s = Concat<axis = 0>(one, k, minus)  y = Reshape(z, s)",
        (PLAIN, NUMBER),
        (TIME - 2,),
    ),
    "a size behind those there are": (
        "k = Div(n, seven)  s = Concat<axis = 0>(minus, k)  y = Reshape(z, s)",
        (PLAIN, NUMBER),
        (sympy.floor(TIME / 7),),
    ),
    "a size of 0": (
        "k = Sub(n, two)  s = Concat<axis = 0>(one, k, minus)  y = Reshape<allowzero = 1>(z, s)",
        (PLAIN, NUMBER),
        (),
    ),
    "a size that is filled": (
        "k = Sub(n, two)  s = Concat<axis = 0>(one, k)  y = ConstantOfShape(s)",
        (NUMBER,),
        (TIME - 1,),
    ),
    "a shape that is filled": ("s = Shape(z)  y = ConstantOfShape(s)", (NUMBER,), ()),
    "what is laid out as data": (
        "o = Expand(half, n)  e = Add(o, o)  c = ReduceSum(e, nothing)  k = Sub(c, e)  h = Unsqueeze(k, nothing)  "
        "i = ReduceMax(h)  y = Reciprocal(i)",
        (PLAIN,),
        (TIME - 1,),
    ),
    "whole numbers for every frame": (
        "k = Sub(n, seven)  e = Expand(k, n)  y = Div(nine, e)",
        (PLAIN, PLAIN),
        (TIME - 7,),
    ),
    "an inverse cosine": ("k = Sub(f, half)  h = Sub(k, half)  y = Acosh(h)", (PLAIN,), (TIME - 1,)),
    "a size that is kept": ("s = Concat<axis = 0>(n, minus)  y = Reshape(z, s)", (PLAIN, NUMBER), ()),
    "data": ("y = Log(z)", (PLAIN,), ()),
    "a count of every row": (
        f"{ROWS}  c = Cast<to = 1>(e)  o = Cast<to = 1>(one)  k = Sub(c, o)  y = Div(z, k)",
        (PLAIN, NUMBER),
        (TIME - 1,),
    ),
    "a power of every row": (
        f"{ROWS}  k = Sub(e, two)  g = Cast<to = 1>(k)  y = Pow(g, half)",
        (NUMBER, PLAIN),
        (TIME - 1,),
    ),
    "a whole count of every row": (f"{ROWS}  k = Sub(e, seven)  y = Mod(nine, k)", (PLAIN, NUMBER), (TIME - 7,)),
    "a count of every row that is 1 or more": (
        f"{ROWS}  c = Cast<to = 1>(e)  k = Sub(c, half)  g = Max(k, half)  y = Div(z, g)",
        (PLAIN, NUMBER),
        (),
    ),
}


@pytest.mark.parametrize(("body", "facts", "needs"), NEEDS.values(), ids=NEEDS)
def test_what_a_node_needs(body: str, facts: tuple[Fact, ...], needs: tuple[object, ...]) -> None:
    assert needs_of(case(body, *facts)) == needs


def test_a_window_may_be_empty() -> None:
    assert needs_of(case("g = Sqrt(f)  y = Reciprocal(g)", NUMBER, side=Side.RIGHT)) == (TIME,)


def test_a_whole_number_that_may_be_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="may be 0") as caught:
        needs_of(case("k = Mod(n, seven)  y = Div(nine, k)", PLAIN, NUMBER))
    assert "Max(number, 1)" in str(caught.value)


def test_a_whole_count_of_every_row_that_may_be_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="may be 0"):
        needs_of(case(f"{ROWS}  k = Mod(e, seven)  y = Div(nine, k)", PLAIN, NUMBER))


def test_what_never_means_anything_is_refused() -> None:
    with pytest.raises(Refused, match="means nothing"):
        needs_of(case("k = Neg(f)  g = Sub(k, half)  y = Log(g)", NUMBER))


def test_no_entries_at_any_length_are_refused() -> None:
    with pytest.raises(Refused, match="no entries along axis 0"):
        needs_of(case("k = Sub(n, n)  s = Concat<axis = 0>(k, minus)  y = Reshape(z, s)", PLAIN, NUMBER))
    assert (
        needs_of(case("k = Sub(n, n)  s = Concat<axis = 0>(k, minus)  y = Reshape<allowzero = 1>(z, s)", PLAIN)) == ()
    )


def test_whole_numbers_by_a_constant_of_0_never_run() -> None:
    with pytest.raises(Refused, match="Mod of whole numbers by 0 never runs; divide by another number"):
        needs_of(case("k = Sub(one, one)  y = Mod(nine, nothing)", PLAIN, PLAIN))
    assert needs_of(case("y = Div(z, table)", PLAIN, PLAIN)) == ()


def test_a_node_means_something_from_where_the_others_do() -> None:
    """1 / (T - 2) is -1 for one frame, and nothing for two, which the root asks for."""
    graph = case(
        "r = Sub(f, half)  q = Sub(r, half)  l = Sqrt(q)  h = Sub(q, half)  p = Sub(h, half)  y = Reciprocal(p)", NUMBER
    ).node.graph
    assert graph is not None
    model = ir.Model(graph, ir_version=10)
    assert needs_of_graph(model, "batch", {"time": Side.LEFT}) == {}
    assert needs_of_graph(model, "batch", {"time": Side.LEFT}, Known({"time": 2})).keys() == {TIME - 1, TIME - 2}


def test_what_means_nothing_is_refused_at_its_node() -> None:
    graph = case("k = Neg(f)  g = Sub(k, half)  y = Log(g)", NUMBER).node.graph
    assert graph is not None
    with pytest.raises(Refused, match="means nothing") as caught:
        needs_of_graph(ir.Model(graph, ir_version=10), "batch", {"time": Side.LEFT})
    assert (caught.value.place.op, caught.value.place.node) == ("Log", "y_log")


def test_axes_that_are_not_padded_are_no_fault_of_short_inputs() -> None:
    assert needs_of(case("k = Sub(f, half)  h = Sub(k, half)  y = Log(h)", NUMBER, side=Side.LEFT)) == (TIME - 1,)
    free = case("k = Sub(f, half)  h = Sub(k, half)  y = Log(h)", NUMBER)
    assert needs_of(Case(free.node, [NUMBER], "batch", {})) == ()


def test_indices_of_each_axis() -> None:
    body = "i = Range(first, m, step)  u = Unsqueeze(i, one)  t = Sub(u, two)  c = Concat<axis = 1>(u, t)  "
    body += "y = Cast<to = 1>(c)"
    made = case(body, NUMBER).node.inputs[0]
    reader = Case(ir.node("GatherND", [ir.val("d"), made]), (PLAIN, NUMBER), "batch", {"time": Side.LEFT})
    assert legal_from(reader, 1, [TIME, TIME], components=True) == (TIME - 1,)
    assert legal_from(reader, 1, [TIME, TIME + 1], components=True) == ()


UNKNOWN = graphs.symbol("_d7")


def test_sizes_that_padding_finds_are_asked_of_lengths() -> None:
    """Shape inference gives up on a size that is rounded in float; what padding makes of it is at least 1."""
    made = case("s = Shape(w)  y = Reshape(z, s)")
    (shape,) = (value for value in made.node.inputs[1:] if value is not None)
    source = ir.val("w", shape=ir.Shape([2, "_d7", 4]), dtype=ir.DataType.FLOAT)
    shape.producer().replace_input_with(0, source)  # type: ignore[union-attr]
    assert needs_of(made) == ()
    assert needs_of(made, Known(named={UNKNOWN: TIME - 3})) == (TIME - 3,)
