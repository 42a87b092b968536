"""Which nodes round every entry on one constant grid."""

import pytest

from compiler.numerics.quantization.one_grid import has_one_grid
from tests.kit.graphs import node_named, parse

GRAPH = """(float[batch,2] x, float[2] each, float scale) => (uint8[batch,2] y)
<float one = {0.5}, float[1] listed = {0.5}, float[2] two = {0.5, 0.25}, uint8 zero = {3}, uint8[2] zeros = {3, 4}>
{ NODE }"""


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = QuantizeLinear(x, one, zero)", True),
        ("y = QuantizeLinear(x, listed)", True),
        ("y = QuantizeLinear<axis = 1>(x, two, zeros)", False),
        ("y = QuantizeLinear(x, scale, zero)", False),
        ("y = Cast<to = 2>(x)", False),
    ],
    ids=["one scale", "a list of one and no zero point", "a scale per column", "a computed scale", "no codes"],
)
def test_one_grid(node: str, expected: bool) -> None:
    model = parse(GRAPH.replace("NODE", node))
    assert has_one_grid(node_named(model, "y")) is expected
