"""shapes_at_work: sizes that inference does not know are those of a call."""

from unittest import mock

from compiler.build.capture.initial_graph import initial_graph
from compiler.build.capture.shapes_at_work import shapes_at_work
from compiler.graph.stages import RowAxis
from compiler.recipe.graph import Graph
from tests.kit.graphs import parse

COMPUTED = """(float[1,4] x, int64[1] token) => (float[a,b] y, float[c] z) <float[2] sizes = {1.2, 4.2}, int64 hundred =
    {100}, float[6] table = {0, 1, 2, 3, 4, 5}> { f = Floor(sizes) s = Cast<to = 7>(f) r = Reshape(x, s)
    t = Sub(token, hundred) z = Gather(table, t) y = Neg(r) }"""


def _spec() -> Graph:
    return Graph.model_validate(
        {
            "source": {"onnx": "x.onnx"},
            "inputs": {
                "x": {"shape": ("batch", 4), "dtype": "float32", "original": (1, 4)},
                "token": {"shape": ("batch",), "dtype": "int64", "original": (1,), "range": (100.0, 105.0)},
            },
            "outputs": ("y", "z"),
            "axes": {"batch": {"buckets": (1, 4)}},
        }
    )


def test_shapes_are_those_of_a_call_within_the_declared_range() -> None:
    assert shapes_at_work(parse(COMPUTED), _spec()) == {"y": (1, 4), "z": (1,)}


def test_nothing_is_known_of_a_graph_that_does_not_answer() -> None:
    assert shapes_at_work(parse(COMPUTED.replace("{100}", "{0}")), _spec()) == {}


def test_an_output_whose_first_size_is_computed_has_its_rows_there() -> None:
    places = initial_graph(mock.Mock(), "tiny", _spec(), (parse(COMPUTED), None), 1, {}).row_axes
    assert RowAxis("y", 0) in places and RowAxis("z", 0) in places


STACKED = """(float[N,4] x, float[2,32,N,4] cache) => (float[a,b,c,d] next_cache, float[e,f] y) <float[1] small = {4.2},
    int64[1] two = {2}, int64[1] frames = {32}, int64[1] minus = {-1}, int64[1] first = {1}, int64[1] last = {33},
    int64[1] at = {1}, int64[2] front = {0, 1}, int64[4] wide = {2, 1, 1, 1}> {
    f = Floor(small) width = Cast<to = 7>(f) n = Unsqueeze(x, front) new = Tile(n, wide)
    all = Concat<axis = 1>(cache, new) kept = Slice(all, first, last, at)
    s = Concat<axis = 0>(two, frames, minus, width)
    next_cache = Reshape(kept, s) t = Transpose(x) u = Concat<axis = 0>(width, minus) y = Reshape(t, u) }"""
"""States stacked over layers with the batch as their third axis, of sizes that inference does not know."""


def test_outputs_of_many_rows_have_their_batch_where_states_are_fed_or_where_sizes_grow() -> None:
    spec = Graph.model_validate(
        {
            "source": {"onnx": "x.onnx"},
            "inputs": {
                "x": {"shape": ("N", 4), "dtype": "float32"},
                "cache": {"shape": (2, 32, "N", 4), "dtype": "float32", "state": "next_cache"},
            },
            "outputs": ("next_cache", "y"),
            "axes": {"N": {"buckets": (1, 4)}},
        }
    )
    places = initial_graph(mock.Mock(), "tiny", spec, (parse(STACKED), None), 1, {}).row_axes
    assert set(places) == {RowAxis("cache", 2), RowAxis("next_cache", 2), RowAxis("y", 1)}
