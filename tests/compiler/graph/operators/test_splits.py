"""Every legal spelling of a Split gives the same view, and the pieces that a reference evaluator gives."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from compiler.graph import model as graphs
from compiler.graph.operators.splits import Split, split_of
from tests.kit.graphs import node_named, parse

STATED = {
    "Split<axis = 1>(x, sizes)": 18,
    "Split<axis = -1>(x, sizes)": 18,
    "Split<axis = 1>(x, sizes) ": 13,
    "Split<axis = 1, split = [1, 4]>(x)": 11,
    "Split<axis = -1, split = [1, 4]>(x)": 2,
}
EQUAL = {
    "Split<axis = 1, num_outputs = 2>(x)": 18,
    "Split<axis = -1, num_outputs = 2>(x)": 20,
    "Split<axis = 1>(x)": 13,
    "Split<axis = -1>(x)": 11,
}


def text(op: str, size: int) -> str:
    return f"(float[3,{size}] x) => (float[a,b] y, float[c,d] z) <int64[2] sizes = {{1, 4}}> {{ y, z = {op} }}"


def view(op: str, opset: int, size: int = 5) -> Split:
    split = split_of(node_named(parse(text(op, size), opset=opset), "y"), graphs.integers_of)
    assert split is not None
    return split


@pytest.mark.parametrize(("op", "opset"), STATED.items())
def test_spellings_of_stated_sizes(op: str, opset: int) -> None:
    split = view(op, opset)
    assert (str(split.data.name), split.axis, split.count, split.sizes) == ("x", 1, 2, (1, 4))
    assert split.bounds(5) == [(0, 1), (1, 5)]


@pytest.mark.parametrize(("op", "opset"), EQUAL.items())
def test_spellings_of_equal_parts(op: str, opset: int) -> None:
    split = view(op, opset)
    assert (str(split.data.name), split.axis, split.count, split.sizes) == ("x", 1, 2, None)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [4, 5, 7, 12])
def test_equal_parts_are_those_of_the_reference(size: int, count: int) -> None:
    names = ", ".join(f"y{piece}" for piece in range(count))
    outputs = ", ".join(f"float[a{piece}] y{piece}" for piece in range(count))
    model = parse(f"(float[{size}] x) => ({outputs}) {{ {names} = Split<axis = 0, num_outputs = {count}>(x) }}")
    split = split_of(node_named(model, "y0"), graphs.integers_of)
    bounds = None if split is None else split.bounds(size)
    x = np.arange(size, dtype=np.float32)
    pieces = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})
    assert bounds is not None and len(bounds) == count
    assert all(np.array_equal(x[slice(*bound)], piece) for bound, piece in zip(bounds, pieces, strict=True))


def test_the_first_axis_by_default() -> None:
    assert view("Split(x, sizes)", 18).axis == 0


def test_sizes_that_follow_from_lengths_or_are_unknown() -> None:
    body = "(float[time,5] x, int64[2] given) => (float[a,b] y, float[c,d] z) <int64[1] two = {2}> { OP }"
    model = parse(
        body.replace("OP", "n = Shape<end = 1>(x) m = Sub(n, two) s = Concat<axis = 0>(two, m) y, z = Split(x, s)")
    )
    split = split_of(node_named(model, "y"), graphs.integers_of)
    assert split is not None and split.sizes == (2, graphs.expression("time - 2")) and split.bounds(9) is None
    unknown = split_of(node_named(parse(body.replace("OP", "y, z = Split(x, given)")), "y"), graphs.integers_of)
    assert unknown is not None and unknown.sizes == (None, None) and unknown.bounds(5) is None
    assert split_of(node_named(model, "n"), graphs.integers_of) is None and split_of(None, graphs.integers_of) is None
