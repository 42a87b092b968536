"""Copies that show what happens inside a graph, or let it be changed: they compute what they say, the rest stays."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.instrumented import correctable, exposed, forced, measured, switch, switched
from compiler.graph.stages import Array, Lowered
from tests.kit.graphs import parse

TEXT = "(float[2] x) => (float[2] h, float[2] y) { h = Neg(x) a = Abs(h) y = Add(a, h) }"
X = np.array([1.0, -2.0], np.float32)


def graph() -> Lowered:
    return Lowered("tiny", parse(TEXT))


def run(lowered: Lowered, **more: Array | bool) -> dict[str, list[float]]:
    feed = {name: np.asarray(array) for name, array in more.items()}
    found = runner_of(lowered).step({"x": X}, {name.replace("__", "."): array for name, array in feed.items()})
    return {name: array.tolist() for name, array in found.items()}


def test_inner_values_leave_the_graph_once_each() -> None:
    found = run(exposed(graph(), ["a", "h", "y"]))
    assert list(found) == ["h", "y", "a"]
    assert found["a"] == [1.0, 2.0]


def test_what_is_measured_leaves_it_under_a_name_of_its_own() -> None:
    found = run(measured(graph(), ["x", "a"], "sum.", lambda insert, value: insert.op("ReduceSum", [value], name="s")))
    assert list(found) == ["h", "y", "sum.x", "sum.a"]
    assert found["sum.x"] == [-1.0] and found["sum.a"] == [3.0]


def test_a_forced_value_is_what_is_given_and_the_output_what_it_would_have_been() -> None:
    found = run(forced(graph(), ["h"]), forced__h=np.array([5.0, 5.0], np.float32))
    assert found["h"] == [-1.0, 2.0]
    assert found["y"] == [10.0, 10.0]


@pytest.mark.parametrize(("where", "y"), [((False, False), [0.0, 6.0]), ((True, False), [2.0, 6.0])])
def test_a_correction_is_added_or_takes_the_place(where: tuple[bool, bool], y: list[float]) -> None:
    found = run(correctable(graph(), ["h"]), added__h=np.array([1, 1], np.float32), replaced__h=np.array(where))
    assert found["y"] == y
    assert found["h"] == [1.0 if where[0] else 0.0, 3.0], "an output shows the corrected value under its name"


def test_a_switch_chooses_between_two_forms_whatever_the_other_holds() -> None:
    # regression: a difference times zero let infinities of the form that was off through
    lowered = graph()
    zero = graphs.Inserter(lowered.model, "test").constant(np.zeros(1, np.float32), "zero")
    by = switch(lowered.model)

    def infinite(value: ir.Value) -> ir.Value:
        return graphs.Inserter(lowered.model, "test", after=value.producer()).op("Div", [value, zero], name="infinite")

    switched(lowered.model, graphs.outputs_named(lowered.model)["h"], by, infinite)
    name = str(by.name)
    off, on = (runner_of(lowered).step({"x": X}, {name: np.array(each)}) for each in (False, True))
    assert off["h"].tolist() == [-1.0, 2.0] and off["y"].tolist() == [0.0, 4.0]
    assert np.isinf(on["h"]).all()
