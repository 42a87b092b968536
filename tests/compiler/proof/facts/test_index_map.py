"""Movements followed in symbols give the places that the movements themselves give, for every size that is tried."""

import itertools

import numpy as np
import onnx_ir as ir
import pytest
import sympy

from compiler.graph import model as graphs
from compiler.proof.facts.executed_index_map import label, run
from compiler.proof.facts.index_map import FRAMES, ROWS, IndexMap, derive, is_impossible, never_negative
from tests.compiler.proof.rules.test_relative_shift import BACK, SPELLINGS, graph
from tests.kit.graphs import parse

KNOWN = {graphs.symbol("time"): FRAMES, graphs.symbol("batch"): ROWS}
P, Q = sympy.symbols("p q", integer=True, nonnegative=True)
BOX = ((P, FRAMES), (Q, FRAMES))


def chain(body: str, last: str) -> tuple[list[ir.Node], tuple[graphs.Dim, ...], ir.Value]:
    """The nodes of a chain, and the operand with its shape."""
    model = graph(body)
    scores = model.graph.inputs[0]
    scores.shape = ir.Shape(["batch", 2, "time", last])
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    made = {str(node.outputs[0].name): node for node in model.graph}
    names = [name for name in ("p", "a", "b", "c", "y") if name in made]
    return [made[name] for name in names], graphs.dims_of(scores) or (), scores


def places(moved: IndexMap, frames: int, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    """What an index map says, as the movements say it."""
    at = {FRAMES: frames, ROWS: rows}
    sizes = [int(size.subs(at)) for _, size in moved.box]
    result = np.full(sizes, 10**9)
    for index in itertools.product(*map(range, sizes)):
        here = at | dict(zip((name for name, _ in moved.box), index, strict=True))
        fitting = [each for each in moved.sources if all(guard.subs(here) >= 0 for guard in each.guards)]
        assert len(fitting) == 1, "cases cover everything once"
        (case,) = fitting
        if case.index is None:
            result[index] = label(case.added)
        else:
            result[index] = np.ravel_multi_index([int(each.subs(here)) for each in case.index], shape)
    return result


@pytest.mark.parametrize("frames", [1, 2, 5])
@pytest.mark.parametrize(
    ("body", "last"), [*((body, "2*time - 1") for body in SPELLINGS.values()), (BACK, "time")], ids=[*SPELLINGS, "back"]
)
def test_places_are_those_of_the_movements(body: str, last: str, frames: int) -> None:
    nodes, dims, start = chain(body, last)
    moved = derive(nodes, dims, KNOWN)
    shape = (1, 2, frames, 2 * frames - 1 if last != "time" else frames)
    sizes = {graphs.symbol("time"): frames, graphs.symbol("batch"): 1}
    expected = run(nodes, start, np.arange(np.prod(shape)).reshape(shape), sizes)
    np.testing.assert_array_equal(places(moved, frames, 1, shape), expected)


def test_numbers_are_compared_at_the_corners_of_a_case() -> None:
    assert never_negative(Q - P + FRAMES - 1, (), BOX)
    assert not never_negative(Q - P + FRAMES - 2, (), BOX)
    assert never_negative(Q - P, (Q - P - 1,), BOX)
    assert not never_negative(sympy.Integer(60) - FRAMES, (), ()), "not for every number of frames"
    assert is_impossible((P - Q - 1, Q - P), BOX) and not is_impossible((P - Q,), BOX)


@pytest.mark.parametrize("start", [-60, -2, 60])
def test_a_cut_that_only_long_inputs_reach_is_not_derived(start: int) -> None:
    """How it is below 60 frames says nothing of how it is from there on."""
    text = f"(float[batch,time,4] x) => (float[a,b,c] y) <int64[1] at = {{{start}}}, int64[1] end = {{{graphs.END}}}, "
    model = parse(text + "int64[1] one = {1}> { p = Slice(x, at, end, one)  y = Transpose<perm = [0, 2, 1]>(p) }")
    with pytest.raises(ValueError, match="a cut at"):
        derive(list(model.graph), graphs.dims_of(model.graph.inputs[0]) or (), KNOWN)


STEP = """(float[1,4,width] x) => (float[a,b,c] out) <int64[1] one = {1}, int64[1] zero = {0}, int64[1] two = {2},
    int64[3] wide = {1, -1, 4}, int64[3] narrow = {1, 4, -1}, int64[1] end = {9223372036854775807}>
    { p = Reshape(x, wide)  a = Slice(p, FIRST, end, one)  BACK  out = Relu(y) }"""


def step(first: str, back: str) -> tuple[list[ir.Node], tuple[graphs.Dim, ...], ir.Value]:
    model = parse(STEP.replace("FIRST", first).replace("BACK", back))
    value = model.graph.inputs[0]
    value.shape = ir.Shape([1, 4, "time + 3"])
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    return list(model.graph)[:-1], graphs.dims_of(value) or (), value


@pytest.mark.parametrize("first", ["zero", "one"])
@pytest.mark.parametrize("frames", [1, 3, 6])
def test_a_quotient_that_is_unknown_goes_away_where_whole_rows_are_cut(first: str, frames: int) -> None:
    nodes, dims, start = step(first, "y = Reshape(a, narrow)")
    moved = derive(nodes, dims, KNOWN)
    shape = (1, 4, frames + 3)
    expected = run(nodes, start, np.arange(np.prod(shape)).reshape(shape), {graphs.symbol("time"): frames})
    np.testing.assert_array_equal(places(moved, frames, 1, shape), expected)


def test_a_quotient_that_stays_is_refused() -> None:
    nodes, dims, _ = step("one", "y = Identity(a)")
    with pytest.raises(ValueError, match="a quotient is not known"):
        derive(nodes[:2], dims, KNOWN)
