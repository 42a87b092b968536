"""Values of places are looked at for every size of an axis along which they are more than repeated."""

from collections.abc import Callable

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.derivation.other_sizes import NotBounded, sizes_of
from compiler.proof.facts.shape_only import ShapeOnly
from tests.kit.place_graphs import PlaceGraph

FRAMES = graphs.symbol("time")


def sizes(write: Callable[[PlaceGraph], ir.Value], most: dict[str, int]) -> list[int]:
    graph = PlaceGraph()
    made = ShapeOnly([graph.ended(write(graph))])
    return [each[graphs.symbol("batch")] for each in sizes_of(made, FRAMES, most)]


def repeated(graph: PlaceGraph) -> ir.Value:
    rows = graph.op("Unsqueeze", graph.rows, graph.ints(0))
    shape = graph.op("Concat", rows, graph.length_1, axis=0)
    return graph.op("Unsqueeze", graph.op("Expand", graph.op("Neg", graph.places), shape), graph.ints(1))


def counted(graph: PlaceGraph) -> ir.Value:
    rows = graph.op("Range", graph.number(0), graph.rows, graph.number(1))
    return graph.op("Add", graph.op("Unsqueeze", rows, graph.ints(1)), graph.places)


def compared(graph: PlaceGraph) -> ir.Value:
    return graph.op("LessOrEqual", graph.places, graph.op("Sub", graph.rows, graph.number(2)))


def summed(graph: PlaceGraph) -> ir.Value:
    rows = graph.op("Unsqueeze", graph.rows, graph.ints(0))
    shape = graph.op("Concat", rows, graph.length_1, axis=0)
    return graph.op("CumSum", graph.op("Expand", graph.number(1), shape), graph.number(0))


def test_what_is_repeated_is_looked_at_once() -> None:
    assert sizes(repeated, {}) == [1]


@pytest.mark.parametrize("write", [counted, compared, summed])
def test_what_is_more_than_repeated_is_looked_at_for_every_size(write: Callable[[PlaceGraph], ir.Value]) -> None:
    assert sizes(write, {"batch": 5}) == [1, 2, 3, 4, 5]


def test_every_size_means_a_largest_one() -> None:
    with pytest.raises(NotBounded, match="changes with the length of axis batch, which has no largest size"):
        sizes(compared, {})
    with pytest.raises(NotBounded, match="changes with the length of axis batch, which has too many sizes"):
        sizes(compared, {"batch": 5000})
