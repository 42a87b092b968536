"""repeated_places: axes that were merged to gather from stay apart, where the places are the same in each of them."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from tests.kit.graphs import parse
from tests.kit.same_bits import agree

TEXT = """(float[2,batch,3,5] x, float[batch] rows) => (float[r,4] y)
    <int64[3] first = {2, 1, 0}, int64[4] column = {0, 1, 2, -2}, int64[2] flat = {-1, 5}, int64[1] last = {-1},
     int64[1] two = {2}> {
        merged = Reshape(x, flat)  counted = Shape(rows)  times = Mul(counted, two)
        repeated = REPEATED  lines = Unsqueeze(repeated, last)  places = PLACES
        y = GatherElements<axis = AXIS>(merged, places)
    }"""

CASES = {
    "added": ("Tile(first, times)", "Add(lines, column)", -1, True),
    "subtracted": ("Tile(first, times)", "Sub(column, lines)", 1, True),
    "repeated less often": ("Tile(first, counted)", "Add(lines, column)", 1, False),
    "along the other axis": ("Tile(first, times)", "Clip(lines)", 0, False),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [1, 3])
def test_gathered_apart(name: str, batch: int) -> None:
    repeated, places, axis, is_apart = CASES[name]
    text = TEXT.replace("REPEATED", repeated).replace("PLACES", places).replace("AXIS", str(axis))
    x = np.random.default_rng(0).standard_normal((2, batch, 3, 5), dtype=np.float32)
    simple = agree(parse(text), {"x": x, "rows": np.zeros(batch, np.float32)})
    (node,) = [node for node in simple.graph if node.op_type == "GatherElements"]
    assert node.inputs[0] is not None
    assert (len(graphs.dims_of(node.inputs[0]) or ()) == 4) == is_apart
