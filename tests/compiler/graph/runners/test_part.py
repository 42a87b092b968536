"""part: the nodes between some values, run by themselves."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.part import Part
from tests.kit.graphs import node_named, parse

TEXT = """(float[batch,3] x, float[batch,3] other, int64[1] at) => (float[batch,3] y, float[m] row)
<float[3] weights = {1, 2, 3}, int64[1] zero = {0}>
{
    scaled = Mul(x, weights)
    shifted = Add(scaled, other)
    y = Neg(shifted)
    sizes = Shape(x)
    many = Gather(sizes, zero)
    row = Expand(weights, many)
}"""


def of(model: ir.Model, *names: str) -> list[ir.Value]:
    return [node_named(model, name).outputs[0] for name in names]


def test_inputs_that_are_read_are_fed() -> None:
    model = parse(TEXT)
    part = Part(model.graph, of(model, "scaled"))
    assert list(part.inputs) == ["x"]
    assert part.run({"x": np.ones((1, 3), np.float32)})[0].tolist() == [[1, 2, 3]]
    assert [output.name for output in model.graph.outputs] == ["y", "row"]


def test_given_values_are_fed_in_the_place_of_what_computes_them() -> None:
    model = parse(TEXT)
    part = Part(model.graph, of(model, "y", "shifted"), of(model, "scaled"))
    assert set(part.inputs) == {"scaled", "other"}
    ones = np.ones((1, 3), np.float32)
    y, shifted = part.run({"scaled": 4 * ones, "other": ones})
    assert (y.tolist(), shifted.tolist()) == ([[-5, -5, -5]], [[5, 5, 5]])


def test_a_value_may_be_given_and_wanted() -> None:
    model = parse(TEXT)
    part = Part(model.graph, of(model, "scaled"), of(model, "scaled"))
    assert part.run({"scaled": np.full((1, 3), 7, np.float32)})[0].tolist() == [[7, 7, 7]]


def test_what_bodies_read_is_fed_as_well() -> None:
    model = parse(
        """(float[2] x, bool when) => (float[2] y)
        { y = If(when)<then_branch = yes () => (float[2] a) { a = Neg(x) },
                       else_branch = no () => (float[2] b) { b = Identity(x) }> }"""
    )
    part = Part(model.graph, of(model, "y"))
    assert set(part.inputs) == {"x", "when"}
    assert part.run({"x": np.ones(2, np.float32), "when": np.array(True)})[0].tolist() == [-1, -1]


def test_sizes_that_are_numbers_read_no_input() -> None:
    model = parse(
        """(float[3,4] x, float[batch,4] z) => (int64[1] y)
        <int64[1] zero = {0}> { sizes = Shape(x)  first = Gather(sizes, zero)  y = Add(first, first) }"""
    )
    graphs.infer_shapes(model)
    for node in list(model.graph)[:2]:
        value = node.outputs[0]
        value.const_value = ir.tensor(np.array([3, 4][: 2 if value.name == "sizes" else 1]), name=value.name)
    part = Part(model.graph, of(model, "y"))
    assert not part.inputs
    assert part.run({})[0].tolist() == [6]
    assert Part(model.graph, of(model, "first")).run({})[0].tolist() == [3]


def test_what_does_not_run_raises() -> None:
    model = parse(TEXT)
    part = Part(model.graph, of(model, "shifted"))
    with pytest.raises(Exception, match="other"):
        part.run({"x": np.ones((1, 3), np.float32)})


def test_contents_behind_a_value_leave_out_what_is_measured() -> None:
    model = parse(TEXT)
    (row,), (shifted,) = of(model, "row"), of(model, "shifted")
    assert graphs.contents_behind([row]) == set()
    assert graphs.contents_behind([shifted, None]) == {"x", "other"}
