"""Small values are read as ONNX Runtime computes them."""

import pytest

from tests.property.small_values import drawn, main, misread

TABLES = {
    "a column and a row": "c = Unsqueeze(a0, one)  r = Unsqueeze(a0, zero)  y = Add(c, r)  z = Reshape(y, minus)",
    "columns side by side": "c = Unsqueeze(a0, one)  y = Concat<axis = -1>(c, c)  z = Reshape(y, minus)",
    "a row of a table": "r = Unsqueeze(a0, zero)  t = Concat<axis = 0>(r, r)  y = Slice(t, one, two)",
    "a product of nothing": "y = ReduceProd<noop_with_empty_axes = 1>(a0)",
}


@pytest.mark.parametrize("body", TABLES.values(), ids=TABLES)
def test_tables_of_sizes(body: str) -> None:
    assert misread(["a0 = Shape(x)", *body.split("  ")]) == []


def test_graphs_of_sizes() -> None:
    assert main(["0", "6"]) == 0
    assert len({line.split("(")[0] for seed in range(3) for line in drawn(seed)}) > 3


@pytest.mark.slow
def test_many_graphs_of_sizes() -> None:
    assert main(["6", "1000"]) == 0
