"""Values that follow from shapes alone are executed for given lengths; what depends on data is not."""

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.shape_only import ShapeOnly
from tests.kit.graphs import node_named, parse

TIME, BATCH, LATE = (graphs.symbol(name) for name in ("time", "batch", "late"))


def value(body: str, name: str = "y") -> ir.Value:
    model = parse(
        f"""(float[batch,time] x, int64[batch,time] mask, int64[batch] lengths, float[late] z) => (float[q] out)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64 nought = {{0}}, int64 unit = {{1}}, int64 two = {{2}},
         int64[1] last = {{-1}}, int64 across = {{1}}, int64[3] fixed = {{0, 1, 2}}, int64[2] both = {{1, 2}},
         int64[0] nowhere = {{}}>
        {{ b = Shape<start = 0, end = 1>(x)  t = Shape<start = 1, end = 2>(x)
           n = Squeeze(b, zero)  m = Squeeze(t, zero)
           frames = Range(nought, m, unit)  rows = Range(nought, n, unit)  {body}  out = Cast<to = 1>(y) }}"""
    )
    for each in [*model.graph.inputs, *model.graph.initializers.values()]:
        if each.name == name:
            return each
    return node_named(model, name).outputs[0]


def test_values_at_lengths() -> None:
    function = ShapeOnly([value("y = Mul(frames, two)")])
    assert function.names == [TIME]
    assert function.at({TIME: 4})[0].tolist() == [0, 2, 4, 6]
    assert ShapeOnly([value("y = Identity(fixed)")]).at({})[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("body", ["y = Relu(x)", "a = Shape(x)  s = Slice(a, one, last)  y = RandomNormalLike(frames)"])
def test_what_depends_on_data(body: str) -> None:
    with pytest.raises(ValueError, match="depends on data"):
        ShapeOnly([value(body)])


def test_lengths_that_do_not_run() -> None:
    with pytest.raises(ValueError, match="out of data bounds"):
        ShapeOnly([value("y = Gather(frames, two)")]).at({TIME: 2})
    with pytest.raises(ValueError, match="time is not known"):
        ShapeOnly([value("y = Identity(frames)")]).at({})
