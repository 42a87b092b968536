"""Derived graphs answer, call by call, as the whole graph does; caches are as small as they can be."""

import numpy as np
import pytest

from compiler.proof.derivation.derive import derive
from tests.kit.graphs import parse
from tests.kit.place_graphs import PlaceGraph
from tests.kit.whole_sequences import (
    LOCALS,
    LONGEST,
    MASKS,
    POSITIONS,
    WRITINGS,
    Drawing,
    in_calls,
    session,
    whole_graph,
)
from tests.property.derived_steps import tried

DRAWINGS = [
    *(Drawing(positions=each, layers=2) for each in POSITIONS),
    *(Drawing(mask=each, width=4, keys_turned=True) for each in MASKS),
    *(Drawing(writing=each, groups=1, flat=True) for each in WRITINGS),
    Drawing(einsum=True, parallel=True, positions="rotary", groups=1),
    *(Drawing(local=each, layers=2, positions="rotary") for each in LOCALS[1:]),
    Drawing(mask="band", width=1, spoiler="wrong_axis"),  # a mask of the diagonal hears nothing later either way
]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=str)
def test_calls_answer_as_the_whole_sequence(drawing: Drawing) -> None:
    assert tried(drawing, checks=False).verdict == "accepted"


def test_keys_are_cached_before_they_are_spread_over_heads() -> None:
    derived = derive(whole_graph(Drawing(groups=1, positions="rotary")), "time", "past", LONGEST)
    shapes = [[str(dim) for dim in each.value.shape or ()] for each in derived.cached]
    assert shapes == [["batch", "1", "1", "time", "4"]] * 2


def test_a_deep_graph_needs_no_deep_stack() -> None:
    derived = derive(whole_graph(Drawing(layers=40)), "time", "past", LONGEST)
    assert len(derived.cached) == 80


def test_a_running_sum_goes_on_from_numbers_and_not_from_truths() -> None:
    graph = PlaceGraph()
    is_sound = graph.op("Not", graph.op("Equal", graph.tokens, graph.number(0)))
    counted = graph.op("CumSum", graph.op("Cast", is_sound, to=7), graph.number(1))
    graph.ended(graph.op("Mul", counted, graph.tokens))
    derived = derive(graph.model, "time", "past", 9)
    assert [str(each.value.dtype) for each in derived.cached] == ["INT64"]


def test_nothing_moves_with_what_comes_later() -> None:
    whole = whole_graph(Drawing(positions="rotary", layers=2))
    derived = derive(whole, "time", "past", LONGEST)
    caches = {each.input: each.output for each in derived.cached}
    tokens = np.random.default_rng(3).integers(0, 13, (2, 12))
    other = np.concatenate([tokens[:, :9], (tokens[:, 9:] + 5) % 13], axis=1)
    first, second = (in_calls(derived.model, caches, {"tokens": each}, [4, *[1] * 8]) for each in (tokens, other))
    assert np.array_equal(first[:, :9], second[:, :9])
    assert not np.array_equal(first[:, 9:], second[:, 9:])
    assert np.allclose(first, session(whole).run(["scores"], {"tokens": tokens})[0], atol=1e-5)


def test_triangles_of_channels_are_no_triangles_of_frames() -> None:
    whole = parse("""(float[batch,time,4] x) => (float[batch,time,4] y) <int64[2] more = {3, 4},
          float[2,2] w = {1, 2, 3, 4}>
        { a = Transpose<perm = [0, 2, 1]>(x)  b = MatMul(x, a)  c = Unsqueeze(b, more)  d = Mul(c, w)
          e = Trilu(d)  f = ReduceSum<keepdims = 0>(e, more)  g = Trilu<upper = 0>(f)  y = MatMul(g, x) }""")
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)}
    (expected,) = session(whole).run(None, feeds)
    derived = derive(whole, "time", "past", LONGEST)
    caches = {each.input: each.output for each in derived.cached}
    found = in_calls(derived.model, caches, feeds, [3, 1, 2], name="y")
    np.testing.assert_allclose(found, expected, rtol=1e-4)
