"""Values of places are tables only where every shorter sequence has the beginning of the longest one's."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.derivation.placed import NotPlaced, placed
from tests.kit.place_graphs import LONGEST, PlaceGraph

FRAMES = house.symbol("time")


def made(write: Callable[[PlaceGraph], ir.Value]) -> ir.Value:
    graph = PlaceGraph()
    return graph.ended(write(graph))


def test_what_no_rule_follows_is_evaluated() -> None:
    """Differences of neighbours, put behind each other: packed sequences are looked for so."""

    def changes(graph: PlaceGraph) -> ir.Value:
        before = graph.op("Concat", graph.ints(-1), graph.places, axis=0)
        earlier = graph.op("Slice", before, graph.ints(0), graph.length_1)
        return graph.op("Sub", graph.places, earlier)

    table = placed(made(changes), FRAMES, LONGEST, {})
    assert table.along == (0,)
    assert np.array_equal(table.array, np.ones(LONGEST))


LENGTH_BOUND: dict[str, Callable[[PlaceGraph], ir.Value]] = {
    "counted from the end": lambda g: g.op("Sub", g.length, g.places),
    "scaled by the length": lambda g: g.op("Mul", g.places, g.length),
    "the length itself": lambda g: g.length,
    "other only from twelve frames on": lambda g: g.op("Add", g.places, g.op("Div", g.length, g.number(12))),
}


@pytest.mark.parametrize("name", LENGTH_BOUND)
def test_what_hangs_on_the_length_is_none(name: str) -> None:
    with pytest.raises(NotPlaced, match=r"it is not the same for [0-9]+ frames and for"):
        placed(made(LENGTH_BOUND[name]), FRAMES, LONGEST, {})


def test_what_differs_between_rows_is_none() -> None:
    def rows(graph: PlaceGraph) -> ir.Value:
        each = graph.op("Unsqueeze", graph.op("Range", graph.number(0), graph.rows, graph.number(1)), graph.ints(1))
        return graph.op("Add", each, graph.places)

    with pytest.raises(NotPlaced, match="differs between rows"):
        placed(made(rows), FRAMES, LONGEST, {"batch": 2})
    with pytest.raises(NotPlaced, match="changes with the length of axis batch, which has no largest size"):
        placed(made(rows), FRAMES, LONGEST, {})


def test_what_differs_from_some_size_of_another_axis_on_is_none() -> None:
    with pytest.raises(NotPlaced, match="differs between rows"):
        placed(made(lambda g: g.op("Add", g.places, g.op("Div", g.rows, g.number(7)))), FRAMES, LONGEST, {"batch": 8})


def test_what_lies_in_front_of_the_frames_is_part_of_the_table() -> None:
    found = placed(made(lambda g: g.op("Concat", g.ints(-1), g.places, axis=0)), FRAMES, LONGEST, {})
    assert found.prefixes == {0: 1}
    assert found.array.tolist() == [-1, *range(LONGEST)]


def test_an_axis_of_other_entries_than_frames_is_none() -> None:
    with pytest.raises(NotPlaced, match=r"an axis of 2\*time entries is made"):
        placed(made(lambda g: g.op("Concat", g.places, g.places, axis=0)), FRAMES, LONGEST, {})


def test_what_hangs_on_data_cannot_be_evaluated() -> None:
    with pytest.raises(NotPlaced, match="it cannot be evaluated"):
        placed(made(lambda g: g.op("Abs", g.tokens)), FRAMES, LONGEST, {})
