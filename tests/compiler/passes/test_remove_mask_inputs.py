"""remove_mask_inputs: masks of padding leave the graph, all other masks stay."""

import dataclasses

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Lowered, PaddedAxis, State
from compiler.passes.pad_axes import PadAxes
from compiler.passes.remove_mask_inputs import RemoveMaskInputs
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import ops_of, parse

HEAD = """(float[batch,time,time] s, {dtype}[batch,time] mask) => (float[batch,time,time] y)
<float low = {{-1e9}}, float one = {{1.0}}, int64[1] first = {{1}}, float[1] zero = {{0.0}}>"""
BODIES = {
    "added": ("float", "i = Sub(one, mask)  m = Mul(i, low)  u = Unsqueeze(m, first)  y = Add(s, u)", []),
    "selected": ("int64", "b = Cast<to = 9>(mask)  u = Unsqueeze(b, first)  y = Where(u, s, low)", []),
    "multiplied": ("float", "u = Unsqueeze(mask, first)  y = Mul(s, u)", []),
    "joined with a causal mask": (
        "int64",
        "b = Cast<to = 9>(mask)  u = Unsqueeze(b, first)  c = Greater(s, zero)  v = And(c, u)  y = Where(v, s, low)",
        ["Greater", "Where"],
    ),
    "counted": (
        "int64",
        "n = CumSum(mask, axis)  f = Cast<to = 1>(n)  u = Unsqueeze(f, first)  y = Mul(s, u)",
        ["CumSum", "Cast", "Unsqueeze", "Mul"],
    ),
    "counted and compared with places": (
        "int64",
        "n = ReduceSum(mask, first)  t = Shape<start = 1, end = 2>(s)  z0 = Constant<value_int = 0>()"
        "  o1 = Constant<value_int = 1>()  none = Constant<value_ints = [0]>()  e = Squeeze(t, none)"
        "  places = Range(z0, e, o1)  v = Less(places, n)  u = Unsqueeze(v, first)  y = Where(u, s, low)",
        [],
    ),
    "written over where there is padding": (
        "int64",
        "b = Cast<to = 9>(mask)  p = Not(b)  i = NonZero(p)  t = Transpose(i)  k = Shape<start = 0, end = 1>(t)"
        "  w = Shape<start = 2, end = 3>(s)  kw = Concat<axis = 0>(k, w)  o = Expand(low, kw)  y = ScatterND(s, t, o)",
        [],
    ),
    "one number read by something else": (
        "int64",
        "n = CumSum(mask, axis)  m = ReduceMax(n, first)  v = LessOrEqual(n, m)  f = Cast<to = 1>(v)"
        "  u = Unsqueeze(f, first)  p = MatMul(u, s)  y = Sub(s, p)",
        ["MatMul", "Sub"],
    ),
}


def masked(name: str) -> Lowered:
    """A graph with a mask input."""
    dtype, body, _ = BODIES[name]
    head = HEAD.replace("<float low", "<int64 axis = {{1}}, float low").format(dtype=dtype)
    model = parse(f"{head} {{ {body.replace('y =', 'z =')}  y = Identity(z) }}")
    axis = PaddedAxis("time", "time_length", ("mask",))
    return Lowered("tiny", model, batch_axis="batch", padded_axes=(axis,))


PAD_BODIES = {
    "selected": ("bool", "u = Unsqueeze(mask, first)  y = Where(u, low, s)", []),
    "added": ("float", "u = Unsqueeze(mask, first)  y = Add(s, u)", []),
    "turned and multiplied": (
        "float16",
        "i = Cast<to = 1>(mask)  m = Sub(one, i)  u = Unsqueeze(m, first)  y = Mul(s, u)",
        [],
    ),
    "turned, counted and compared with places": (
        "bool",
        "i = Not(mask)  k = Cast<to = 7>(i)  n = ReduceSum(k, first)  t = Shape<start = 1, end = 2>(s)"
        "  z0 = Constant<value_int = 0>()  o1 = Constant<value_int = 1>()  none = Constant<value_ints = [0]>()"
        "  e = Squeeze(t, none)  places = Range(z0, e, o1)  v = Less(places, n)  u = Unsqueeze(v, first)"
        "  y = Where(u, s, low)",
        [],
    ),
    "read by something else": (
        "float",
        "u = Unsqueeze(mask, first)  p = MatMul(u, s)  y = Sub(s, p)",
        ["MatMul", "Sub"],
    ),
    "counted": (
        "float",
        "n = ReduceSum(mask, axis)  u = Unsqueeze(n, first)  y = Sub(s, u)",
        ["ReduceSum", "Unsqueeze", "Sub"],
    ),
}


@pytest.mark.parametrize("name", PAD_BODIES)
def test_the_graph_without_a_mask_of_padding_is_the_graph_fed_with_zeros(name: str) -> None:
    dtype, body, wanted = PAD_BODIES[name]
    head = HEAD.replace("<float low", "<int64[1] axis = {{1}}, float low").format(dtype=dtype)
    model = parse(f"{head} {{ {body.replace('y =', 'z =')}  y = Identity(z) }}")
    s = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    kind = {"bool": np.bool_, "float": np.float32, "float16": np.float16}[dtype]
    expected = run_model(model, {"s": s, "mask": np.zeros((2, 5), kind)})
    axis = PaddedAxis("time", "time_length", pad_mask_inputs=("mask",))
    folded = RemoveMaskInputs().apply(Lowered("tiny", model, batch_axis="batch", padded_axes=(axis,))).lowered.model
    assert [str(value.name) for value in folded.graph.inputs] == ["s"]
    np.testing.assert_array_equal(run_model(folded, {"s": s})["y"], expected["y"])
    assert [op for op in ops_of(folded) if op not in ("Identity", "Shape", "Concat", "Expand")] == wanted


@pytest.mark.parametrize("name", BODIES)
def test_the_graph_without_the_mask_is_the_graph_fed_with_ones(name: str) -> None:
    lowered = masked(name)
    s = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    kind = np.float32 if BODIES[name][0] == "float" else np.int64
    expected = run_model(lowered.model, {"s": s, "mask": np.ones((2, 5), kind)})
    outcome = RemoveMaskInputs().apply(lowered)
    assert [str(value.name) for value in outcome.lowered.model.graph.inputs] == ["s"]
    np.testing.assert_array_equal(run_model(outcome.lowered.model, {"s": s})["y"], expected["y"])
    left = [op for op in ops_of(outcome.lowered.model) if op not in ("Identity", "Shape", "Concat", "Expand")]
    assert left == BODIES[name][2]


def test_lengths_leave_the_graph() -> None:
    model = parse(
        """(float[batch,time] x, int64[batch] lengths) => (float[batch,time] y)
        <int64 nought = {0}, int64 unit = {1}, int64[1] first = {1}, float zero = {0.0}, int64[0] scalar = {}>
        { t = Shape<start = 1, end = 2>(x)  n = Reshape(t, scalar)  places = Range(nought, n, unit)
          l = Unsqueeze(lengths, first)  seen = Less(places, l)  kept = Where(seen, x, zero)
          f = Cast<to = 1>(l)  y = Div(kept, f) }"""
    )
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    expected = run_model(model, {"x": x, "lengths": np.array([5, 5], np.int64)})["y"]
    axis = PaddedAxis("time", "lengths", length_inputs=("lengths",))
    model = RemoveMaskInputs().apply(Lowered("tiny", model, batch_axis="batch", padded_axes=(axis,))).lowered.model
    assert [str(value.name) for value in model.graph.inputs] == ["x"]
    assert "Where" not in ops_of(model)
    np.testing.assert_array_equal(run_model(model, {"x": x})["y"], expected)


@pytest.mark.parametrize(
    "longest",
    [
        "m = ReduceMax<keepdims = 0>(lengths)",
        "l = Add(lengths, one)  h = Sub(l, one)  k = ReduceMax(h)  m = Squeeze(k)",
        "h = Cast<to = 6>(lengths)  k = ReduceMax(h)  i = Squeeze(k)  m = Cast<to = 7>(i)",
    ],
)
def test_a_mask_of_as_many_entries_as_the_longest_row_is_one_of_the_row(longest: str) -> None:
    model = parse(
        f"""(float[batch,time,4] x, int64[batch] lengths) => (float[batch,time,4] y)
        <int64 one = {{1}}, int64[1] last = {{1}}, int64[1] two = {{2}}, float none = {{0.0}}> {{
        {longest}  z = Constant<value_int = 0>()  places = Range(z, m, one)  n = Unsqueeze(lengths, last)
        late = GreaterOrEqual(places, n)  w = Unsqueeze(late, two)  y = Where(w, none, x) }}"""
    )
    axis = PaddedAxis("time", "time_length", length_inputs=("lengths",))
    folded = RemoveMaskInputs().apply(Lowered("net", model, batch_axis="batch", padded_axes=(axis,))).lowered
    assert [value.name for value in folded.model.graph.inputs] == ["x"]
    assert PadAxes().apply(folded).lowered.is_padded


def test_a_window_of_the_past_stays() -> None:
    """A comparison with a constant holds for short inputs alone."""
    body = (
        "b = Cast<to = 9>(mask)  c = CumSum(mask, axis)  w = Constant<value_int = 3000>()  v = Less(c, w)"
        "  a = And(v, b)  u = Unsqueeze(a, first)  y = Where(u, s, low)"
    )
    head = HEAD.replace("<float low", "<int64 axis = {{1}}, float low").format(dtype="int64")
    model = parse(f"{head} {{ {body} }}")
    axis = PaddedAxis("time", "time_length", ("mask",))
    model = RemoveMaskInputs().apply(Lowered("tiny", model, batch_axis="batch", padded_axes=(axis,))).lowered.model
    assert "Less" in ops_of(model)


def test_a_mask_that_alone_has_its_axis_is_refused() -> None:
    model = parse("(float[batch,4] x, float[batch,time] mask) => (float[batch,time] y) { y = Relu(mask) }")
    lowered = Lowered("tiny", model, padded_axes=(PaddedAxis("time", "time_length", ("mask",)),))
    with pytest.raises(Refused, match="only input with an axis of time"):
        RemoveMaskInputs().apply(lowered)


def test_no_more_is_said_to_be_rewritten_than_was_looked_at() -> None:
    """A mask that is made of sizes alone is folded without any input of masks."""
    model = parse(
        """(float[batch,time] x) => (float[batch,time] y)
        <int64[1] one = {1}, int64[1] none = {0}, int64[1] two = {2}, float low = {-1.0}> {
            s = Shape(x)  t = Slice(s, one, two, none)  v = GreaterOrEqual(t, none)  e = Expand(v, s)
            y = Where(e, x, low) }"""
    )
    axis = PaddedAxis("time", "time_length")
    outcome = RemoveMaskInputs().apply(Lowered("tiny", model, batch_axis="batch", padded_axes=(axis,)))
    assert 0 < outcome.rewritten <= outcome.matched


def test_a_graph_without_masks_stays() -> None:
    lowered = masked("added")
    before = graphs.serialized(lowered.model)
    outcome = RemoveMaskInputs().apply(dataclasses.replace(lowered, padded_axes=()))
    assert (outcome.rewritten, graphs.serialized(outcome.lowered.model)) == (0, before)


def test_what_is_true_at_every_length_of_a_cache_leaves_a_graph_without_masks() -> None:
    """As of every new frame that may see all before it: 0, 1, .., n is at most n."""
    model = parse(
        """(float[batch,1,4] x, float[batch,cache,4] past) => (float[batch,seen] y, float[batch,kept,4] next_past)
        <int64 nought = {0}, int64 one = {1}, int64[1] first = {0}, float low = {-1e9}, int64[1] last = {-1}>
        {
            next_past = Concat<axis = 1>(past, x)  n = Shape<start = 1, end = 2>(past)  c = Squeeze(n)
            m = Add(c, one)  places = Range(nought, m, one)  seen = LessOrEqual(places, c)
            rows = Unsqueeze(seen, first)  s = ReduceSum<keepdims = 0>(next_past, last)  z = Where(rows, s, low)
            y = Neg(z)
        }"""
    )
    lowered = Lowered(
        "tiny", model, states=(State("past", "next_past", 1, "cache"),), batch_axis="batch",
        caches=(CacheAxis("cache", 8, 1, "real_length", None),),
    )  # fmt: skip
    outcome = RemoveMaskInputs().apply(lowered)
    assert ops_of(outcome.lowered.model) == ["Concat", "ReduceSum", "Neg"]


SINGULAR = {
    "at one length": "e = Equal(n, special)  g = Where(e, two, unit)",
    "from one length on": "e = Greater(n, special)  g = Where(e, two, unit)",
    "at some remainders": "r = Mod(n, seven)  e = Equal(r, three)  g = Where(e, two, unit)",
    "up to one length": "g = Min(n, special)",
    "looked up": "r = Mod(n, seven)  g = Gather(table, r)",
    "at one length of the mask": "e = Equal(c, special)  g = Where(e, two, unit)",
}


@pytest.mark.parametrize("number", [30, 1001])
@pytest.mark.parametrize("body", SINGULAR.values(), ids=SINGULAR)
def test_what_differs_at_one_length_stays_right_at_every_length(body: str, number: int) -> None:
    """A value that few lengths change is no constant, whichever lengths one may try; alone and padded."""
    model = parse(
        f"""(float[batch,time] x, int64[batch,time] mask) => (float[batch,time] y)
        <int64[1] special = {{{number}}}, int64[1] unit = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
         int64[1] seven = {{7}}, int64[7] table = {{0, 0, 0, 1, 0, 0, 0}}>
        {{ n = Shape<start = 1, end = 2>(x)  c = ReduceSum(mask, unit)  {body}  f = Cast<to = 1>(g)  y = Mul(x, f) }}"""
    )
    axis = PaddedAxis("time", "time_length", ("mask",))
    origin = Lowered("tiny", model, batch_axis="batch", padded_axes=(axis,))
    outcome = RemoveMaskInputs().apply(dataclasses.replace(origin, model=graphs.clone(model)))
    folded = outcome.lowered
    graphs.infer_shapes(folded.model)
    padded = PadAxes().apply(dataclasses.replace(folded, model=graphs.clone(folded.model)))
    for length in (number - 1, number, number + 1, 7 * (number // 7) + 3):
        x, mask = np.ones((1, length), np.float32), np.ones((1, length), np.int64)
        wanted = run_model(model, {"x": x, "mask": mask})["y"]
        np.testing.assert_array_equal(run_model(folded.model, {"x": x})["y"], wanted)
        wide = np.ones((1, length + 3), np.float32)
        made = run_model(padded.lowered.model, {"x": wide, "time_length": np.array([length], np.int64)})["y"]
        np.testing.assert_array_equal(made[:, :length], wanted)


def test_the_call_that_starts_a_stream_loses_its_masks_too() -> None:
    text = "(float[batch,time,4] x, float[batch,time] mask) => (float[batch,time,4] y) <int64[1] last = {-1}>"
    model = parse(text + "{ wide = Unsqueeze(mask, last)  y = Mul(x, wide) }")
    lowered = Lowered("net", model, graphs.clone(model), padded_axes=(PaddedAxis("time", "n", ("mask",)),))
    folded = RemoveMaskInputs().apply(lowered).lowered
    assert [set(graphs.inputs_named(each)) for each in folded.models] == [{"x"}, {"x"}]
