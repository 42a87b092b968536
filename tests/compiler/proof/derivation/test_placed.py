"""Values of places are tables only where every shorter sequence has the beginning of the longest one's."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.derivation.placed import NotPlaced, placed
from tests.kit.place_graphs import LONGEST, PlaceGraph

FRAMES = graphs.symbol("time")


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


BATCH = graphs.symbol("batch")


def behind_rows(graph: PlaceGraph, entries: ir.Value) -> ir.Value:
    """As many entries as there are rows, and behind them as many places as there are frames."""
    return graph.op("Concat", entries, graph.places, axis=0)


def test_one_entry_stands_for_a_prefix_of_any_length_that_repeats_it() -> None:
    def repeated(graph: PlaceGraph) -> ir.Value:
        rows = graph.op("Unsqueeze", graph.rows, graph.ints(0))
        return behind_rows(graph, graph.op("Expand", graph.ints(-7), rows))

    found = placed(made(repeated), FRAMES, LONGEST, {"batch": 3})
    assert (found.prefixes, found.repeated) == ({0: 1}, {0: BATCH})
    assert found.array.tolist() == [-7, *range(LONGEST)]


def test_places_that_go_on_behind_a_prefix_of_any_length_are_one_table() -> None:
    def counted(graph: PlaceGraph) -> ir.Value:
        every = graph.op("Range", graph.number(0), graph.op("Add", graph.rows, graph.length), graph.number(1))
        return graph.op("Mul", every, every)

    found = placed(made(counted), FRAMES, LONGEST, {"batch": 3})
    assert (found.prefixes, found.repeated) == ({0: BATCH}, {})
    assert found.array.tolist() == [at * at for at in range(3 + LONGEST)]


def test_a_prefix_of_other_entries_at_every_call_is_none() -> None:
    def other(graph: PlaceGraph) -> ir.Value:
        return behind_rows(graph, graph.op("Range", graph.number(0), graph.rows, graph.number(1)))

    with pytest.raises(NotPlaced, match="entries in front of its frames differ, and at every call there are others"):
        placed(made(other), FRAMES, LONGEST, {"batch": 3})


def test_axes_of_several_entries_per_row_have_one_that_is_repeated() -> None:
    def spread(graph: PlaceGraph, places: ir.Value) -> ir.Value:
        several = graph.op("Unsqueeze", graph.op("Mul", graph.rows, graph.number(4)), graph.ints(0))
        return graph.op("Expand", places, graph.op("Concat", several, graph.length_1, axis=0))

    found = placed(made(lambda g: spread(g, g.places)), FRAMES, LONGEST, {"batch": 3})
    assert found.array.tolist() == [[*range(LONGEST)]] and found.along == (1,)

    def numbered(graph: PlaceGraph) -> ir.Value:
        several = graph.op("Mul", graph.rows, graph.number(4))
        each = graph.op("Range", graph.number(0), several, graph.number(1))
        return graph.op("Add", graph.op("Unsqueeze", each, graph.ints(1)), graph.places)

    with pytest.raises(NotPlaced, match="differs between rows"):
        placed(made(numbered), FRAMES, LONGEST, {"batch": 3})


def test_an_axis_of_other_entries_than_frames_is_none() -> None:
    with pytest.raises(NotPlaced, match=r"an axis of 2\*time entries is made"):
        placed(made(lambda g: g.op("Concat", g.places, g.places, axis=0)), FRAMES, LONGEST, {})


def test_what_hangs_on_data_cannot_be_evaluated() -> None:
    with pytest.raises(NotPlaced, match="it cannot be evaluated"):
        placed(made(lambda g: g.op("Abs", g.tokens)), FRAMES, LONGEST, {})
