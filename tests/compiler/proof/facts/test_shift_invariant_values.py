"""Distances between frames at the end of their slots are alike in all rows and in the slots; places are not."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.runners.session import open_session
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fact, make_fact
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.layout import Axis, Rows, Segment, Side, joined
from compiler.proof.facts.shift_invariant_values import fact_alike
from tests.kit.graphs import node_named, parse

PLACES = """size = Shape<start = 1, end = 2>(past)  whole = Add(size, two)  n = Squeeze(whole)  cached = Squeeze(size)
    k = Range(nought, n, by)  q = Range(cached, n, by)  keys = Unsqueeze(k, zero)  queries = Unsqueeze(q, one)
    first = Range(nought, step, by)  columns = Unsqueeze(first, one)
    d = Sub(keys, queries)  f = Cast<to = 1>(keys)  g = Cast<to = 1>(queries)  """

ALIKE = {
    "distances": "v = Sub(keys, queries)",
    "distances turned round": "less = Neg(keys)  v = Add(less, queries)",
    "multiples of both": "a = Mul(keys, step)  b = Mul(queries, step)  v = Sub(a, b)",
    "distances to the last frame": "v = Sub(whole, keys)",
    "as another type": "c = Cast<to = 6>(keys)  e = Cast<to = 6>(queries)  v = Sub(c, e)",
    "what is computed of distances": "v = Abs(d)",
    "fractions of distances": "e = Cast<to = 1>(d)  v = Exp(e)",
    "whether one is the later": "v = Greater(d, zero)",
    "rows of a table": "least = Max(d, low)  most = Min(least, two)  at = Add(most, two)  v = Gather(table, at)",
    "rows of a table, one number each": """least = Max(d, low)  most = Min(least, two)  at = Add(most, two)
        last = Unsqueeze(at, two)  v = GatherND(table, last)""",
    "seen from another side": "v = Transpose<perm = [1, 0]>(d)",
}
DIFFERENT = {
    "places": "v = Identity(keys)",
    "places less those of the first frames": "v = Sub(keys, columns)",
    "multiples of one": "a = Mul(keys, step)  v = Sub(a, queries)",
    "sums of places": "v = Add(keys, queries)",
    "products": "v = Mul(keys, queries)",
    "steps of two": "j = Range(nought, n, step)  v = Unsqueeze(j, zero)",
    "fractions of places": "e = Div(f, half)  h = Div(g, half)  v = Sub(e, h)",
    "places in float32": "v = Sub(f, g)",
    "remainders": "a = Mod(keys, two)  b = Mod(queries, two)  v = Sub(a, b)",
    "the size": "v = Add(whole, d)",
    "data of no row": "v = Mul(given, f)",
    "columns of a table": """least = Max(d, low)  most = Min(least, two)  at = Add(most, two)
        v = Gather<axis = 1>(table, at)""",
}  # fmt: skip


def case_of(body: str, side: Side = Side.RIGHT, seen: Mapping[Dim, Axis] | None = None) -> tuple[Case, ir.Model]:
    text = f"""(float[batch,cache,4] past, float[1,1] given) => (float[a,b] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] low = {{-2}}, int64 nought = {{0}},
     int64 by = {{1}}, int64 step = {{2}}, float half = {{0.5}},
     float[5,5] table = {{{", ".join(str(number / 8) for number in range(25))}}}>
    {{ {PLACES} {body}  y = com.acme.Join(past, v) }}"""
    model = parse(text)
    graphs.infer_shapes(model)
    rows = make_fact({0: (Rows(graphs.symbol("batch")),)}, lambda region: ANYTHING)
    return Case(node_named(model, "y"), [rows, NUMBER], "batch", {"cache": side}, seen=seen or {}), model


def held(model: ir.Model, cached: int) -> np.ndarray:
    """Return the contents of `v` with `cached` cached frames."""
    copy = graphs.clone(model)
    node = node_named(copy, "y")
    value = node.inputs[1]
    assert value is not None
    copy.graph.outputs[0] = value
    copy.graph.remove(node)
    graphs.prune(copy)
    feeds = {"past": np.zeros((1, cached, 4), np.float32), "given": np.ones((1, 1), np.float32)}
    read = {str(each.name) for each in copy.graph.inputs}
    session = open_session(graphs.serialized(copy))
    (found,) = session.run([str(value.name)], {name: array for name, array in feeds.items() if name in read})
    return np.asarray(found)


@pytest.mark.parametrize("body", ALIKE.values(), ids=ALIKE)
def test_what_is_alike_lies_at_the_end_of_its_slots(body: str) -> None:
    case, model = case_of(body)
    fact = fact_alike(case, 1)
    assert fact is not None and not fact.is_number and fact.rows_axis is None
    slots = held(model, 7)
    for cached in (0, 1, 4, 7):
        alone = held(model, cached)
        end = tuple(slice(there - here, None) for here, there in zip(alone.shape, slots.shape, strict=True))
        np.testing.assert_array_equal(slots[end], alone)
    assert all(axis[0].size == graphs.symbol("cache") + 2 for _, axis in fact.axes)


@pytest.mark.parametrize("body", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_from_row_to_row_is_not_alike(body: str) -> None:
    assert fact_alike(case_of(body)[0], 1) is None


def test_frames_with_free_slots_among_them_are_not_alike() -> None:
    """A first frame that is always there lies in front of the free slots of the cache, and the others behind them."""
    cache = graphs.symbol("cache")
    axis = joined([Segment(1), Segment(cache, Side.RIGHT), Segment(1)])
    assert fact_alike(case_of(ALIKE["distances"], seen={cache + 2: axis})[0], 1) is None


def test_frames_that_come_first_are_counted_otherwise() -> None:
    assert fact_alike(case_of(ALIKE["distances"], Side.LEFT)[0], 1) is None


def test_a_table_bounds_what_is_looked_up() -> None:
    fact = fact_alike(case_of(ALIKE["rows of a table"])[0], 1)
    assert isinstance(fact, Fact) and fact.valid == Interval(0, 3)
