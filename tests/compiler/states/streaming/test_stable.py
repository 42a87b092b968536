"""What is stable, and who reads it how."""

import dataclasses

import pytest

from compiler.graph.stages import Lowered, State
from compiler.states.streaming.stable import Frames, Stable, find_caches, is_constant
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import BATCH, node_named, parse, random_weights

ALONG = CacheAxis("cache", 6, 2, "real_length", None)


def caching(body: str, past: str = "float[batch,cache,4]") -> Lowered:
    """A cache joined to `joined`, and a body that makes `y` of it."""
    text = f"""(float[batch,2,4] x, {past} past, float[4,4] w, float[4] g, float[4] scale)
    => (float[a,b,c] y, float[batch,kept,4] joined)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] newest = {{-2}},
     int64[1] end = {{9223372036854775807}}, int64[1] eight = {{8}}, int64[1] end32 = {{2147483647}},
     int64[3] fours = {{0, -1, 4}}, int64[3] pairs = {{0, 2, -1}}>
    {{ joined = Concat<axis = 1>(past, x)  {body} }}"""
    model = parse(text, random_weights({"w": (4, 4), "g": (4,)}))
    return Lowered("tiny", model, states=(State("past", "joined", 1, "cache"),), caches=(ALONG,), batch_axis=BATCH)


def stable_of(body: str) -> Stable:
    lowered = caching(body)
    caches, refused = find_caches(lowered, ALONG)
    assert not refused
    return Stable(lowered.model, caches, Frames.along(ALONG))


MIX = "y = Softmax<axis = 1>(v)"

FOLLOWED = {
    "v = MatMul(joined, w)": ["joined", "v"],
    "u = Add(joined, g)  v = Mul(u, joined)": ["joined", "u", "v"],
    "v = Transpose<perm = [0, 2, 1]>(joined)": ["joined", "v", "y"],  # then y is a function of single frames
    "v, u = Split<axis = -1, num_outputs = 2>(joined)": ["joined", "v", "u"],
    "v = Mul(joined, scale)": ["joined"],  # an input may change from call to call
    "v = CumSum(joined, one)": ["joined"],
    "v = Reshape(joined, fours)": ["joined", "v"],
    "v = Reshape(joined, pairs)": ["joined"],
    "v = Softmax<axis = 1>(joined)": ["joined"],
    "r = RandomNormalLike(g)  v = Add(joined, r)": ["joined"],
    "c = Tanh(g)  v = Add(joined, c)": ["joined", "v"],
}


@pytest.mark.parametrize("body", FOLLOWED)
def test_functions_of_single_frames_and_constants_are_stable(body: str) -> None:
    assert [value.name for value in stable_of(f"{body}  {MIX}").axes] == FOLLOWED[body]


def test_the_axis_moves_with_the_frames() -> None:
    stable = stable_of("v = Transpose<perm = [1, 0, 2]>(joined)  y = Softmax<axis = 0>(v)")
    assert list(stable.axes.values()) == [1, 0]
    joined, moved = stable.axes
    assert (stable.can_be_state(joined), stable.can_be_state(moved)) == (True, False)


def test_what_mixes_frames_or_leaves_the_graph_is_demanded() -> None:
    assert [value.name for value in stable_of(f"v = MatMul(joined, w)  {MIX}").demanded] == ["v"]
    assert [value.name for value in stable_of("y = MatMul(joined, w)").demanded] == ["y"]


NEWEST = {
    "Slice(joined, newest, end, one)": True,
    "Slice(joined, newest, end32, one)": True,
    "Slice(joined, newest, end, one, one)": True,
    "Slice(joined, newest, end, one, two)": False,
    "Slice(joined, newest, end, two)": False,
    "Slice(joined, zero, end, one)": False,
    "Slice(joined, newest, eight, one)": False,
}


@pytest.mark.parametrize("cut", NEWEST)
def test_only_a_slice_of_exactly_the_new_frames_reads_them_alone(cut: str) -> None:
    stable = stable_of(f"v = {cut}  {MIX}")
    assert ([node.outputs[0].name for node in stable.newest] == ["v"]) is NEWEST[cut]
    if cut != "Slice(joined, newest, end, two)":  # that one cuts every frame by itself, and is stable
        assert bool(stable.demanded) is not NEWEST[cut]


def test_lengths_are_no_reason_to_keep_a_value() -> None:
    stable = stable_of("v = MatMul(joined, w)  n = Shape<start = 0, end = 2>(v)  y = Expand(scale, n)")
    assert ([node.op_type for node in stable.lengths], stable.demanded) == (["Shape"], [])


def test_a_cache_that_is_joined_twice_is_none() -> None:
    lowered = caching(f"again = Concat<axis = 1>(past, x)  v = Add(joined, again)  {MIX}")
    caches, (refused,) = find_caches(lowered, ALONG)
    assert not caches
    assert "joined exactly once" in refused.reason


def test_a_cache_that_is_joined_with_more_than_the_new_frames_is_none() -> None:
    """The first of them are as many as a call adds."""
    lowered = caching(f"v = Add(joined, g)  {MIX}")
    join = node_named(lowered.model, "joined")
    join.resize_inputs(3)
    join.replace_input_with(2, join.inputs[1])
    caches, (refused,) = find_caches(lowered, ALONG)
    assert not caches
    assert "joined exactly once" in refused.reason


def test_new_frames_of_another_number_are_reported() -> None:
    lowered = caching(f"v = Add(joined, g)  {MIX}")
    other = dataclasses.replace(ALONG, step=3)
    caches, (refused,) = find_caches(lowered, other)
    assert not caches
    assert "expected cache cached frames and 3 new ones, got shapes [batch,cache,4] and [batch,2,4]" in refused.reason


def test_another_size_of_the_cache_that_is_read_is_reported() -> None:
    lowered = caching(f"n = Shape<start = 2, end = 3>(past)  v = Add(joined, g)  {MIX}", "float[batch,cache,width]")
    caches, (refused,) = find_caches(lowered, ALONG)
    assert not caches
    assert "is read as a number" in refused.reason


def test_constants_are_followed_to_their_sources() -> None:
    model = caching(f"c = Tanh(g)  r = RandomNormalLike(g)  s = Tanh(scale)  v = Add(joined, c)  {MIX}").model
    values = {name: node_named(model, name).outputs[0] for name in ("c", "r", "s")}
    assert {name: is_constant(value) for name, value in values.items()} == {"c": True, "r": False, "s": False}
