"""Every legal spelling of a reduction gives the same view."""

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.operators.reductions import SEARCHES, Reduction, reduction_of
from compiler.graph.operators.traits import GLOBAL_POOLS, REDUCTIONS
from tests.kit.graphs import node_named, parse

TEXT = """(float[2,3,4] x, int64[1] given) => (float[a,b,c] y)
    <int64[0] nowhere = {}, int64[2] front = {0, 2}, int64[2] back = {-3, -1}, int64[2] turned = {-1, 0}>
    { y = OP }"""


def view(op: str, opset: int = 20) -> Reduction | None:
    return reduction_of(node_named(parse(TEXT.replace("OP", op), opset=opset), "y"), graphs.integers_of)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_spellings_of_axes(name: str) -> None:
    for axes in ("front", "back", "turned"):
        assert view(f"{name}(x, {axes})") == Reduction(3, (0, 2), True)
        assert view(f"{name}<keepdims = 0>(x, {axes})") == Reduction(3, (0, 2), False)
    for operands in ("x", "x, ", "x, nowhere"):
        assert view(f"{name}({operands})") == Reduction(3, (0, 1, 2), True)
        assert view(f"{name}<noop_with_empty_axes = 1>({operands})") == Reduction(3, (), True)


@pytest.mark.parametrize("axes", ["[0, 2]", "[-3, -1]"])
def test_older_operator_sets_name_axes_by_an_attribute(axes: str) -> None:
    assert view(f"ReduceMax<axes = {axes}, keepdims = 0>(x)", 13) == Reduction(3, (0, 2), False)
    assert view("ReduceMax(x)", 13) == Reduction(3, (0, 1, 2), True)


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_a_search_reduces_one_axis(name: str) -> None:
    assert view(f"{name}<axis = -1, keepdims = 0>(x)") == view(f"{name}<axis = 2, keepdims = 0>(x)")
    assert view(f"{name}(x)") == Reduction(3, (0,), True)


@pytest.mark.parametrize("name", sorted(GLOBAL_POOLS))
def test_a_pool_reduces_what_lies_behind_the_channels(name: str) -> None:
    assert view(f"{name}(x)") == Reduction(3, (2,), True)


def test_the_axes_that_stay() -> None:
    assert Reduction(3, (1,), True).kept == {0: 0, 2: 2}
    assert Reduction(3, (1,), False).kept == {0: 0, 1: 2}
    assert Reduction(2, (), False).kept == {0: 0, 1: 1}


def test_what_is_not_known() -> None:
    assert view("ReduceSum(x, given)") is None
    assert view("Relu(x)") is None
    assert reduction_of(ir.node("ReduceSum", [ir.Value(name="x")]), graphs.integers_of) is None
