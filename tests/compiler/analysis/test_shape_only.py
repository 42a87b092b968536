"""Values that follow from shapes alone are executed for given lengths; what depends on data is not."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.analysis.shape_only import ShapeOnly, counted_axis, stays_below, trials, uniform_values
from tests.kit.graphs import node_named, parse

TIME, BATCH, LATE = (house.symbol(name) for name in ("time", "batch", "late"))


def value(body: str, name: str = "y") -> ir.Value:
    model = parse(
        f"""(float[batch,time] x, int64[batch,time] mask, int64[batch] lengths, float[late] z) => (float[q] out)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64 nought = {{0}}, int64 unit = {{1}}, int64 two = {{2}},
         int64[1] last = {{-1}}, int64 across = {{1}}, int64[3] fixed = {{0, 1, 2}}>
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


def test_masks_of_ones() -> None:
    counted = value("y = CumSum(mask, across)")
    graph = counted.producer().graph  # type: ignore[union-attr]
    (mask,) = [each for each in graph.inputs if each.name == "mask"]  # type: ignore[union-attr]
    assert ShapeOnly([counted], {mask: 1}).at({TIME: 3, BATCH: 2})[0].tolist() == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(ValueError, match="depends on data"):
        ShapeOnly([counted])


@pytest.mark.parametrize("body", ["y = Relu(x)", "a = Shape(x)  s = Slice(a, one, last)  y = RandomNormalLike(frames)"])
def test_what_depends_on_data(body: str) -> None:
    with pytest.raises(ValueError, match="depends on data"):
        ShapeOnly([value(body)])


def test_lengths_that_do_not_run() -> None:
    with pytest.raises(ValueError, match="out of data bounds"):
        ShapeOnly([value("y = Gather(frames, two)")]).at({TIME: 2})
    with pytest.raises(ValueError, match="no value for"):
        ShapeOnly([value("y = Identity(frames)")]).at({})


COUNTED = {
    "y = Identity(frames)": 0,
    "y = Unsqueeze(frames, zero)": 1,
    "a = Concat<axis = 0>(b, t)  f = Unsqueeze(frames, zero)  y = Expand(f, a)": 1,
    "r = Unsqueeze(rows, one)  a = Concat<axis = 0>(b, t)  y = Expand(r, a)": 0,
    "y = Add(frames, unit)": None,
    "y = Mul(frames, two)": None,
    "y = Identity(mask)": None,
    "f = Unsqueeze(frames, one)  y = Concat<axis = 1>(f, f)": 0,
}


@pytest.mark.parametrize(("body", "axis"), COUNTED.items())
def test_what_counts_along_an_axis(body: str, axis: int | None) -> None:
    assert counted_axis(value(body), "batch") == axis


def test_an_entry_that_counts() -> None:
    pair = value("f = Unsqueeze(frames, one)  g = Mul(f, two)  y = Concat<axis = 1>(g, f)")
    assert counted_axis(pair, "batch", 1) == 0
    assert counted_axis(pair, "batch", 0) is None


def test_bounds() -> None:
    assert stays_below(value("y = Identity(frames)"), TIME, "batch")
    assert stays_below(value("y = Div(frames, two)"), expression := house.expression("(time + 1)//2"), "batch")
    assert not stays_below(value("y = Add(frames, unit)"), TIME, "batch")
    assert not stays_below(value("y = Sub(frames, unit)"), TIME, "batch")
    assert not stays_below(value("y = Identity(mask)"), TIME, "batch")
    assert not stays_below(value("y = Identity(frames)"), LATE, "batch")
    assert expression != TIME


def test_counting_ends_at_a_constant() -> None:
    """A comparison with a constant is seen only beyond it."""
    assert counted_axis(value("c = Constant<value_int = 300>()  y = Min(frames, c)"), "batch") is None
    assert counted_axis(value("c = Constant<value_int = 90000>()  y = Min(frames, c)"), "batch") is None
    assert counted_axis(value("c = Constant<value_int = 9223372036854775807>()  y = Min(frames, c)"), "batch") == 0


UNIFORM = {
    "y = Identity(mask)": [1],
    "y = GreaterOrEqual(frames, nought)": [True],
    "y = Less(frames, two)": None,
    "c = CumSum(mask, across)  l = ReduceMax<keepdims = 0>(c, last)  u = Unsqueeze(l, one)  y = Less(frames, u)": [
        True
    ],
    "c = CumSum(mask, across)  y = ReduceMax<keepdims = 0>(c, last)": None,
    "b1 = Cast<to = 9>(mask)  b2 = Not(b1)  y = NonZero(b2)": [],
    "y = Equal(lengths, m)": [True],
    "c = Constant<value_int = 300>()  y = Less(frames, c)": None,
    "c = Constant<value_int = 90000>()  y = Less(frames, c)": None,
    "c = Constant<value_int = 5>()  y = Gather(frames, c)": [5],
    "y = Gather(lengths, two)": None,
}


@pytest.mark.parametrize(("body", "number"), UNIFORM.items())
def test_what_holds_one_number_for_all_lengths(body: str, number: list[int] | None) -> None:
    wanted = value(body)
    filled: dict[ir.Value, house.Dim] = {}
    for name, number_in in (("mask", 1), ("lengths", TIME)):
        filled[value_of(wanted, name)] = number_in
    found = uniform_values([wanted], filled, "batch")
    assert (found[wanted].tolist() if found else None) == number


def value_of(wanted: ir.Value, name: str) -> ir.Value:
    """A graph input."""
    graph = wanted.producer().graph  # type: ignore[union-attr]
    return next(each for each in graph.inputs if each.name == name)  # type: ignore[union-attr]


def test_one_run_for_many_values() -> None:
    first = value("y = Identity(mask)  w = Less(frames, two)")
    second = next(node.outputs[0] for node in first.producer().graph if node.outputs[0].name == "w")  # type: ignore[union-attr]
    assert list(uniform_values([first, second], {value_of(first, "mask"): 1}, "batch")) == [first]
    first = value("y = Identity(mask)  w = Gather(fixed, frames)")  # which fails from 4 frames on
    second = next(node.outputs[0] for node in first.producer().graph if node.outputs[0].name == "w")  # type: ignore[union-attr]
    assert list(uniform_values([first, second], {value_of(first, "mask"): 1}, "batch")) == [first]


def test_lengths_to_try() -> None:
    alone = list(trials([TIME], BATCH, range(1, 25)))
    assert {each[TIME] for each in alone} >= set(range(1, 25))
    assert {each[BATCH] for each in alone} == {1, 2, 3, 33}
    both = list(trials([TIME, LATE], None, [4]))
    assert {(each[TIME], each[LATE]) for each in both} >= {(1, 8), (8, 1), (3, 3), (4, 4)}
    assert list(trials([], BATCH, [1])) == [{BATCH: rows} for rows in (1, 2, 3, 33)]
    assert np.all([BATCH not in each for each in both])
