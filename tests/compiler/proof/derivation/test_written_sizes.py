"""Sizes of a call are read of its inputs, its caches and what is joined to them."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.proof.derivation.written_sizes import Part, Sizes, written_size

TIME, PAST = graphs.symbol("time"), graphs.symbol("past")


def call(recent: int = 0) -> tuple[ir.Model, Sizes, list[ir.Value]]:
    kind = ir.TensorType(ir.DataType.FLOAT)
    inputs = [ir.Value(name=name, shape=ir.Shape(["batch", name]), type=kind) for name in ("time", "past")]
    model = ir.Model(ir.Graph(inputs, [], nodes=[], opset_imports={"": 20}, name="call"), ir_version=10)
    return model, Sizes(model, TIME, PAST, recent), inputs


def run(model: ir.Model, values: list[ir.Value]) -> list[np.ndarray]:
    model.graph.outputs.extend(values)
    feeds = {"time": np.zeros((3, 2), "f"), "past": np.zeros((3, 5), "f")}
    return list(session_of(model).run([str(each.name) for each in values], feeds))


def test_sizes_and_places_of_a_call() -> None:
    model, sizes, inputs = call()
    batch = graphs.symbol("batch")
    asked = [
        sizes.several([2 * batch, TIME + PAST, 4], "shape"),
        *(sizes.places(part, "") for part in (Part.NEW, Part.ALL)),
        *(sizes.places(part, "", 3) for part in (Part.NEW, Part.FIRST, Part.SINCE, Part.ALL)),
        *(sizes.places(part, "", 1, batch) for part in (Part.NEW, Part.FIRST, Part.ALL)),
        sizes.scalar(PAST, ir.DataType.FLOAT),
    ]
    joined = graphs.Inserter(model, "test").op("Concat", inputs[::-1], {"axis": 1}, name="joined")
    sizes.measure([(inputs[1], joined, 1)])
    shape, new, every, *behind, past = run(model, asked)
    assert shape.tolist() == [6, 7, 4]
    assert new.tolist() == [5, 6]
    assert every.tolist() == [*range(7)]
    assert [each.tolist() for each in behind[:4]] == [[8, 9], [0, 1, 2], [*range(3, 10)], [*range(10)]]
    assert [each.tolist() for each in behind[4:]] == [[6, 7], [0, 0, 0], [0, 0, 0, *range(1, 8)]]
    assert float(past) == 5.0
    assert past.dtype.name == "float32"


def test_frames_that_were_never_heard_have_the_first_place_and_are_told_apart() -> None:
    model, sizes, inputs = call(recent=7)
    asked = [sizes.places(Part.RECENT, ""), sizes.heard("")]
    sizes.measure([(inputs[1], inputs[1], 1)])
    places, heard = run(model, asked)
    assert places.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert heard.tolist() == [False] * 2 + [True] * 7
    assert sizes.count(Part.RECENT) == TIME + 7


def test_places_without_a_cache_are_refused() -> None:
    _, sizes, _ = call()
    sizes.places(Part.NEW, "")
    with pytest.raises(Refused, match="nothing is cached whose frames could be counted"):
        sizes.measure([])


def test_an_axis_that_no_input_has_is_refused() -> None:
    _, sizes, _ = call()
    with pytest.raises(Refused, match="no input has an axis width"):
        sizes.one(graphs.symbol("width"))


def test_sizes_are_written_as_shapes_have_them() -> None:
    assert [written_size(3), written_size(TIME)] == [3, "time"]
