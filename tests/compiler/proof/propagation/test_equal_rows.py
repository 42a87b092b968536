"""What has equal rows is found by one rule per operator; what adds rows up, or is real, is not."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.proof.propagation.equal_rows import EqualRows
from tests.kit.graphs import parse

TEXT = """(float[batch,2,4] x, int64[batch] offset, float[batch,4] context, float[9,4] table)
    => (float[batch,2,4] y, int64[batch] twos)
<int64[1] one = {1}, int64[1] last = {-1}, int64[2] places = {0, 1}, int64[1] two = {2}>
{
    size = Shape<start = 0, end = 1>(x)
    twos = Expand(two, size)
    column = Unsqueeze(offset, one)
    at = Add(column, places)
    rows = Gather<axis = 0>(table, at)
    OTHER
    y = Add(x, rows)
}"""


def named(other: str) -> dict[str, int]:
    model = parse(TEXT.replace("OTHER", other), {"table": np.ones((9, 4), np.float32)})
    equal = EqualRows(model, ["offset", "context"], "batch")
    assert {str(value.name): content.shape for value, content in equal.contents.items()} == {
        "offset": (1,),
        "twos": (1,),
    }
    assert graphs.inputs_named(model)["offset"] in equal.axes
    return {str(value.name): axis for value, axis in equal.axes.items()}


def test_positions_by_a_count_have_equal_rows() -> None:
    assert named("") == {"offset": 0, "twos": 0, "column": 0, "at": 0, "rows": 0}


@pytest.mark.parametrize(
    "other",
    [
        "total = ReduceSum<keepdims = 1>(offset)",
        "sums = CumSum(offset, zero_axis)",
        "seen = Add(x, rows)",
        "kept = Relu(context)",
        "least = Slice(offset, one, two)",
    ],
)
def test_other_values_do_not(other: str) -> None:
    text = other.replace("zero_axis", "first")
    assert named(f"first = Squeeze(one)  {text}" if "first" in text else text) == named("")
