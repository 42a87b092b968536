"""pack_states: states of equal shape travel as one tensor."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from compiler.errors import RecipeError
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Lowered, State
from compiler.passes.pack_states import PackStates, Stacked
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import verify_pass, verify_refusal, verify_untouched
from tests.kit.graphs import BATCH, copy_of, ops_of, parse, streaming


def windowed(**variant: Any) -> tuple[Lowered, Lowered]:
    origin = streaming(**variant)
    return origin, WindowStates().apply(PadAxes().apply(copy_of(origin)).lowered).lowered


def test_two_caches_become_one() -> None:
    origin, lowered = windowed(two_caches=True)
    outcome = verify_pass(PackStates(), lowered, tolerance=1e-5, origin=origin, steps=15)
    assert outcome.lowered.states == (
        State("packed_0", "next_packed_0", 2, "cache"),
        State("context", "next_context", None),
    )
    assert ops_of(outcome.lowered.model).count("Where") == ops_of(lowered.model).count("Where") - 1


def test_the_oldest_frames_are_dropped_before_joining() -> None:
    origin, lowered = windowed(two_caches=True)
    outcome = verify_pass(PackStates(), lowered, tolerance=1e-5, origin=origin)
    next_packed = graphs.outputs_named(outcome.lowered.model)["next_packed_0"].producer()
    assert next_packed is not None
    assert next_packed.op_type == "Concat"


FRAMES_FIRST = """(float[4,1,3] x, float[8,1,3] a, float[8,1,3] b) => (float[4,1,3] y, float[8,1,3] na, float[8,1,3] nb)
    <int64[1] step = {4}, int64[1] all = {12}, int64[1] zero = {0}> {
    z = Neg(x)  ja = Concat<axis = 0>(a, x)  jb = Concat<axis = 0>(b, z)
    m = ReduceMean(ja, zero)  n = ReduceMax(jb, zero)
    w = Add(m, n)  y = Add(x, w)  na = Slice(ja, step, all, zero)  nb = Slice(jb, step, all, zero) }"""


def test_frames_that_lie_in_front_of_all_stay_there() -> None:
    states = (State("a", "na", 0, "cached"), State("b", "nb", 0, "cached"))
    lowered = Lowered("tiny", parse(FRAMES_FIRST), states=states, caches=(CacheAxis("cached", 8, 4, "length", None),))
    packed = PackStates().apply(copy_of(lowered)).lowered
    assert packed.states == (State("packed_0", "next_packed_0", 0, "cached"),)
    x, a, b = (np.random.default_rng(0).standard_normal((size, 1, 3), dtype=np.float32) for size in (4, 8, 8))
    alone = run_model(lowered.model, {"x": x, "a": a, "b": b})
    together = run_model(packed.model, {"x": x, "packed_0": np.stack([a, b], axis=1)})
    np.testing.assert_array_equal(together["y"], alone["y"])
    np.testing.assert_array_equal(together["next_packed_0"], np.stack([alone["na"], alone["nb"]], axis=1))


def test_states_of_different_shapes_stay() -> None:
    outcome = verify_untouched(PackStates(), windowed()[1])
    assert outcome.matched == 2


@pytest.mark.parametrize(("most", "packs"), [(None, False), (3, False), (2, True), (0, True)])
def test_states_stay_apart_where_a_step_may_have_so_many(most: int | None, packs: bool) -> None:
    origin, lowered = windowed(two_caches=True)
    assert len(lowered.states) == 3
    if packs:
        verify_pass(PackStates(most), lowered, tolerance=1e-5, origin=origin)
    else:
        assert verify_untouched(PackStates(most), lowered).detail == "3 states stay apart"


@pytest.mark.parametrize("most", [-1, True])
def test_what_is_no_number_of_states_is_refused(most: int) -> None:
    with pytest.raises(RecipeError, match="most: expected a number of states or null"):
        PackStates(most)


def test_a_dynamic_state_is_refused() -> None:
    verify_refusal(PackStates(), streaming(), message="sizes behind the batch", cure="fix its axes", tensor="past")


STEPS = """(float[batch,SHAPE] x, float[batch,SHAPE] a, float[batch,SHAPE] b)
    => (float[batch,SHAPE] y, float[batch,SHAPE] next_a, float[batch,SHAPE] next_b)
{
    next_b = Sub(x, b)
    next_a = Add(a, x)
    y = Mul(a, b)
}"""


@pytest.mark.parametrize("shape", ["3", "3,2", "2,3,4"])
def test_states_without_frames_are_stacked(shape: str) -> None:
    states = (State("a", "next_a", None), State("b", "next_b", None))
    lowered = Lowered("tiny", parse(STEPS.replace("SHAPE", shape)), states=states, batch_axis=BATCH)
    verify_pass(PackStates(), lowered, tolerance=0.0)


def test_a_packed_state_is_not_packed_again_with_one_that_has_its_shape() -> None:
    # regression: a second application packed the packed
    text = """(float[batch,3] x, float[batch,3] a, float[batch,3] b, float[batch,2,3] c)
        => (float[batch,3] next_a, float[batch,3] next_b, float[batch,2,3] next_c, float[batch,3] y)
        <int64[1] one = {1}>
        { next_a = Add(a, x)  next_b = Add(b, next_a)  w = Unsqueeze(x, one)  next_c = Add(c, w)  y = Neg(next_b) }"""
    states = tuple(State(name, f"next_{name}", None) for name in "abc")
    verify_pass(PackStates(), Lowered("tiny", parse(text), states=states, batch_axis=BATCH), tolerance=1e-6)


SHIFTS = """(float[batch,NEW,2] x, float[batch,4,2] a, float[batch,4,2] b)
    => (float[batch,NEW,2] y, float[batch,4,2] next_a, float[batch,4,2] next_b)
<int64[1] start = {START}, int64[1] end = {END}, int64[1] axis = {1}>
{
    u = Concat<axis = 1>(a, x)
    next_a = Slice(u, start, end, axis)
    v = Concat<axis = 1>(b, x)
    next_b = Slice(v, start, end, axis)
    y = Neg(x)
}"""


@pytest.mark.parametrize(("new", "start"), [(2, 2), (4, 4), (6, 6), (3, 1), (2, 0)])
def test_shifts_of_every_width_keep_their_meaning(new: int, start: int) -> None:
    # regression: a shift by other than the number of new frames, or by more than the window, was rewritten wrongly
    text = SHIFTS.replace("NEW", str(new)).replace("START", str(start)).replace("END", str(start + 4))
    states = (State("a", "next_a", 1, "cache"), State("b", "next_b", 1, "cache"))
    verify_pass(PackStates(), Lowered("tiny", parse(text), states=states, batch_axis=BATCH), tolerance=0.0)


def test_members_in_another_order_than_the_graph_cleans_them() -> None:
    origin, lowered = windowed(two_caches=True)
    swapped = dataclasses.replace(lowered, states=tuple(reversed(lowered.states)))
    verify_pass(PackStates(), swapped, tolerance=1e-5, origin=origin)


def test_the_map_of_states_stacks_along_axis_one() -> None:
    mapped = Stacked((("p", ("a", "b")),)).apply({"a": np.zeros((2, 3)), "b": np.ones((2, 3)), "c": np.ones(1)})
    assert mapped["p"].shape == (2, 2, 3)
    assert mapped["p"][:, 1].all()
    assert set(mapped) == {"c", "p"}


def test_single_numbers_stay_apart() -> None:
    text = "(float[2] x, float a, float b) => (float[2] y, float c, float d) { c = Neg(a)  d = Abs(b)  y = Add(x, c) }"
    lowered = Lowered("tiny", parse(text), states=(State("a", "c", None), State("b", "d", None)))
    assert PackStates().apply(copy_of(lowered)).lowered.states == lowered.states
