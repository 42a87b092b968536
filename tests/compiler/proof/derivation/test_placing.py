"""Tables of places are written in the smallest form that gives their entries, for the places of any call."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.proof.derivation.placed import Array, Placed
from compiler.proof.derivation.placing import Placing, by_distance, compared, varying
from compiler.proof.derivation.written_sizes import Part, Sizes

LONGEST, PAST, NEW = 11, 6, 3
ROWS, COLUMNS = np.indices((LONGEST, LONGEST))
RANDOM = np.random.default_rng(0)

TABLES: dict[str, tuple[Array, tuple[int, ...], str]] = {
    "one number": (np.full((1, LONGEST), 7), (1,), "constant"),
    "places": (np.arange(LONGEST)[None], (1,), "counted"),
    "places from two": (np.arange(LONGEST) + 2, (0,), "counted"),
    "rows of a table": (RANDOM.standard_normal((1, LONGEST, 3)).astype("f"), (1,), "looked up"),
    "columns of a table": (RANDOM.standard_normal((2, 3, LONGEST)).astype("f"), (2,), "looked up"),
    "causal": ((COLUMNS <= ROWS)[None, None], (2, 3), "compared"),
    "band": ((COLUMNS <= ROWS) & (COLUMNS > ROWS - 4), (0, 1), "compared"),
    "future": ((COLUMNS > ROWS), (0, 1), "compared"),
    "low": (np.where(COLUMNS <= ROWS, 0, -np.inf).astype("f")[None], (1, 2), "compared"),
    "hole": ((COLUMNS <= ROWS) & (COLUMNS != ROWS - 3), (0, 1), "by distance"),
    "slopes": ((COLUMNS - ROWS) * np.array([0.5, 0.25], "f")[:, None, None], (1, 2), "by distance"),
    "chunks": (ROWS // 4 >= COLUMNS // 4, (0, 1), "looked up"),
    "columns alone": (np.broadcast_to(np.arange(LONGEST) < 3, (LONGEST, LONGEST)), (0, 1), "looked up"),
}


def written(array: Array, along: tuple[int, ...], part: Part) -> tuple[ir.Model, ir.Value]:
    """A graph of what a table is for a call of three frames behind six."""
    shape = [graphs.symbol("time") if at in along else size for at, size in enumerate(array.shape)]
    whole = ir.Value(name="table", shape=ir.Shape([str(each) for each in shape]))
    whole.shape = ir.Shape([str(each) if at in along else int(array.shape[at]) for at, each in enumerate(shape)])
    inputs = [ir.Value(name=name, shape=ir.Shape([name]), type=ir.TensorType(ir.DataType.FLOAT))
              for name in ("time", "past")]  # fmt: skip
    model = ir.Model(ir.Graph(inputs, [], nodes=[], opset_imports={"": 20}, name="call"), ir_version=10)
    sizes = Sizes(model, graphs.symbol("time"), graphs.symbol("past"))
    count = sizes.frames if part is Part.NEW else sizes.total
    after = [count if at in along else size for at, size in enumerate(array.shape)]
    found = Placing(model, sizes).written(whole, Placed(array, along), dict.fromkeys(along, part), after)
    joined = graphs.Inserter(model, "test").op("Concat", inputs[::-1], {"axis": 0}, name="joined")
    sizes.measure([(inputs[1], joined, 0)])
    model.graph.outputs.append(found)
    found.dtype = ir.DataType.from_numpy(array.dtype)
    return model, found


@pytest.mark.parametrize("part", [Part.NEW, Part.ALL])
@pytest.mark.parametrize("name", TABLES)
def test_every_form_gives_the_entries_of_a_call(name: str, part: Part) -> None:
    array, along, form = TABLES[name]
    model, found = written(array, along, part)
    feeds = {"time": np.zeros(NEW, "f"), "past": np.zeros(PAST, "f")}
    (got,) = session_of(model).run([str(found.name)], feeds)
    places = np.arange(PAST if part is Part.NEW else 0, PAST + NEW)
    expected = array
    for at in along:
        expected = expected.take(places, at)
    assert np.array_equal(np.broadcast_to(got, expected.shape), expected)
    ops = {node.op_type for node in model.graph}
    assert ("Gather" in ops) == (form in ("looked up", "by distance"))
    assert ("Range" in ops) == (form != "constant")


def test_tables_are_told_apart() -> None:
    assert varying(Placed(TABLES["columns alone"][0], (0, 1))) == (1,)
    assert by_distance(TABLES["chunks"][0], 0, 1) is None
    slopes = by_distance(TABLES["slopes"][0], 1, 2)
    assert slopes is not None
    assert slopes.shape == (2 * LONGEST - 1, 2)
    assert compared(slopes) is None


BOUNDS: dict[str, tuple[int | None, int | None]] = {"causal": (0, None), "band": (0, 3), "future": (0, None)}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_that_no_place_reaches_are_left_out(name: str) -> None:
    array, (row, column), _ = TABLES[name]
    distances = by_distance(array, row, column)
    assert distances is not None
    found = compared(distances)
    assert found is not None
    assert (found.low, found.high) == BOUNDS[name]
    assert bool(found.inside) is (name != "future")
