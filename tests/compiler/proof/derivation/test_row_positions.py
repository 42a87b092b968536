"""What follows from a position of each row is what it is for that row alone."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.derivation.row_positions import NotByRow, RowPositions
from tests.kit.graphs import parse
from tests.kit.whole_sequences import session

TEXT = """
(float[batch, heads, 3, 2] x, float[3, batch, 4] z, int64[1] heard, float[9, 4] table) =>
    (float[batch, heads, 3, 2] y, float[3, batch, 4] w)
<int64[3] places = {0, 1, 2}, float[2] rates = {1.0, 0.25}, float[2, 2] square = {1.0, 2.0, 3.0, 4.0},
 int64[1] last = {1}, int64[1] zero = {0}, int64[1] two = {2}, int64[2] flat = {3, 1}>
{
    now = Add(places, heard)
    column = Unsqueeze(now, last)
    real = Cast<to = 1>(column)
    angles = Mul(real, rates)
    both = Concat<axis = -1>(angles, angles)
    half = Slice(both, zero, two, last)
    turned = Transpose<perm = [1, 0]>(half)
    back = Transpose<perm = [1, 0]>(turned)
    wave = Cos(back)
    y = Mul(x, wave)
    rows = Gather<axis = 0>(table, now)
    shaped = Reshape(column, flat)
    level = Cast<to = 1>(shaped)
    product = Mul(rows, level)
    apart = Unsqueeze(product, last)
    w = Add(z, apart)
}
"""


REPEATED = "sizes = Shape<start = 1, end = 3>(z)  repeated = Expand(apart, sizes)  w = Add(z, repeated)"
"""The target of the Expand names the last two axes of three, one of which has the rows."""


def model(text: str = TEXT) -> ir.Model:
    table = np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32)
    made = parse(text, {"table": table})
    graphs.infer_shapes(made)
    return made


def by_row(graph: ir.Model) -> ir.Model:
    heard = next(value for value in graph.graph.inputs if value.name == "heard")
    graph.graph.inputs.remove(heard)
    of_rows = ir.Value(name="heard_of_rows", shape=ir.Shape(["batch"]), type=heard.type)
    graph.graph.inputs.append(of_rows)
    first = graphs.Inserter(graph, "test", before=next(iter(graph.graph)))
    RowPositions(graph, graphs.symbol("batch")).write(
        heard, first.op("Unsqueeze", [of_rows, first.int64s(1)], name="h")
    )
    graphs.prune(graph)
    return graph


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("w = Add(z, apart)", REPEATED)], ids=["", "last axes repeated"])
def test_every_row_is_computed_with_its_own_position(text: str) -> None:
    random = np.random.default_rng(0)
    x, z = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 2, 3, 2), (3, 2, 4)))
    alone, together = session(model(text)), session(by_row(model(text)))
    found = together.run(None, {"x": x, "z": z, "heard_of_rows": np.array([1, 5])})
    for row, position in enumerate((1, 5)):
        expected = alone.run(None, {"x": x[row : row + 1], "z": z[:, row : row + 1], "heard": np.array([position])})
        np.testing.assert_allclose(found[0][row : row + 1], expected[0], rtol=0, atol=1e-6)
        np.testing.assert_allclose(found[1][:, row : row + 1], expected[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("written", "other"),
    [
        ("Cos(back)", "Softmax<axis = 0>(back)"),
        ("y = Mul(x, wave)", "both_ways = MatMul(back, square) y = MatMul(x, both_ways)"),
        ("(angles, angles)", "(angles, z_like)"),
    ],
    ids=["unknown", "product with data", "joined to others"],
)
def test_what_has_no_rule_is_named(written: str, other: str) -> None:
    ones = "float[3, 2] z_like = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}, int64[1] last"
    text = TEXT.replace(written, other).replace("int64[1] last", ones)
    graph = parse(text, {"table": np.zeros((9, 4), np.float32)})
    graphs.infer_shapes(graph)
    with pytest.raises(NotByRow, match="computes with positions, and no rule says"):
        by_row(graph)
