"""shapes_at_work: sizes that inference does not know are those of a call."""

from unittest import mock

from compiler.capture.initial_graph import initial_graph
from compiler.capture.shapes_at_work import shapes_at_work
from compiler.recipe.graph import Graph
from compiler.stages import RowPlace
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
    places = initial_graph(mock.Mock(), "tiny", _spec(), (parse(COMPUTED), None), 1, {}).row_places
    assert RowPlace("y", 0) in places and RowPlace("z", 0) in places
