"""transposed: the context of a convolution is carried in the order in which its new frames are computed."""

import dataclasses

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, State
from compiler.passes.sink_transposes import SinkTransposes
from compiler.states.state_rewriting.transposed import Transposed, transpose_states
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import copy_of, ops_of, parse, random_weights

BEGIN = (((0.5, 0.25), (1.0, 2.0), (3.0, 4.0), (5.0, 6.0)),)

PARTS = {
    "t": "t = Transpose<perm = [0, 2, 1]>(x)",
    "joined": "joined = Concat<axis = 2>(past, t)",
    "next": "next_past = Slice(joined, newest, end, axis)",
    "read": "c = Conv<group = 4>(joined, kernel)",
    "y": "y = Transpose<perm = [0, 2, 1]>(c)",
}


def context(frames_axis: int | None = None, /, **parts: str) -> Lowered:
    """A depthwise convolution of three frames over 6 new ones and 2 of the call before."""
    body = "\n".join((PARTS | parts).values())
    text = f"""(float[batch,6,4] x, float[batch,4,2] past, float[4,1,3] kernel, float[4,8,3] wide)
    => (float[batch,p,q] y, float[batch,4,2] next_past)
    <int64[1] newest = {{-2}}, int64[1] end = {{9223372036854775807}}, int64[1] axis = {{-1}}, int64[1] one = {{1}}>
    {{ {body} }}"""
    model = parse(text, random_weights({"kernel": (4, 1, 3), "wide": (4, 8, 3)}))
    cache = None if frames_axis is None else "cache"
    state = State("past", "next_past", frames_axis, cache, initial=0 if frames_axis else BEGIN)
    return Lowered("tiny", model, states=(state,), batch_axis="batch", data_outputs=("y",))


def test_new_frames_are_joined_as_they_come() -> None:
    outcome = verify_pass(SinkTransposes(), context(), tolerance=0.0, steps=4)
    after = outcome.lowered
    assert ops_of(after.model) == ["Concat", "Slice", "Transpose", "Conv", "Transpose"]
    assert list(graphs.inputs_named(after.model)["past"].shape or ()) == ["batch", 2, 4]
    assert list(graphs.outputs_named(after.model)["next_past"].shape or ()) == ["batch", 2, 4]
    assert after.states[0].initial == (((0.5, 1.0, 3.0, 5.0), (0.25, 2.0, 4.0, 6.0)),)
    assert outcome.detail == "1 states turned"


def test_a_number_that_it_begins_with_stays() -> None:
    graph = context()
    states = tuple(dataclasses.replace(state, initial=2.5) for state in graph.states)
    outcome = verify_pass(SinkTransposes(), dataclasses.replace(graph, states=states), tolerance=0.0, steps=4)
    assert outcome.lowered.states[0].initial == 2.5


def test_states_of_four_axes() -> None:
    text = """(float[batch,6,3,4] x, float[batch,4,2,3] past, float[4,1,3,1] kernel)
    => (float[batch,4,6,3] y, float[batch,4,2,3] next_past)
    <int64[1] newest = {-2}, int64[1] end = {9223372036854775807}, int64[1] axis = {2}>
    { t = Transpose<perm = [0, 3, 1, 2]>(x)  joined = Concat<axis = 2>(past, t)
      next_past = Slice(joined, newest, end, axis)  y = Conv<group = 4>(joined, kernel) }"""
    model = parse(text, random_weights({"kernel": (4, 1, 3, 1)}))
    graph = Lowered("tiny", model, states=(State("past", "next_past", None),), batch_axis="batch", data_outputs=("y",))
    outcome = verify_pass(SinkTransposes(), graph, tolerance=0.0, steps=4)
    assert list(graphs.inputs_named(outcome.lowered.model)["past"].shape or ()) == ["batch", 2, 3, 4]


def test_a_form_turns_no_state() -> None:
    after = SinkTransposes(turns_states=False).apply(context()).lowered
    assert list(graphs.inputs_named(after.model)["past"].shape or ()) == ["batch", 4, 2]
    assert after.state_maps == ()


TURN = "Transpose<perm = [0, 2, 1]>"
BESIDE = f"left = {TURN}(c)  right = {TURN}(other)  y = Concat<axis = 1>(left, right)"

LEFT = {
    "it is read by something else": {"read": f"{PARTS['read']}  other = Neg(past)", "y": BESIDE},
    "what reads it is no convolution": {"read": "c = Softmax<axis = 2>(joined)"},
    "it is a kernel": {"read": "c = Conv(wide, joined)", "y": "y = Identity(c)"},
    "something else reads what it is joined with": {"read": f"{PARTS['read']}  other = Neg(joined)", "y": BESIDE},
    "the next one is computed": {"next": "cut = Slice(joined, newest, end, axis)  next_past = Neg(cut)"},
    "the next one is read": {"next": f"{PARTS['next']}  other = Tanh(next_past)", "y": BESIDE},
}


@pytest.mark.parametrize("reason", LEFT)
def test_a_context_is_left_where(reason: str) -> None:
    graph = context(**LEFT[reason])
    after, transposed = transpose_states(copy_of(graph), "sink_transposes")
    assert transposed == 0
    assert after.states == graph.states


def test_frames_that_a_mask_counts_are_left() -> None:
    after, transposed = transpose_states(context(2), "sink_transposes")
    assert transposed == 0
    assert list(graphs.inputs_named(after.model)["past"].shape or ()) == ["batch", 4, 2]


def test_an_order_that_moves_the_rows_is_left() -> None:
    text = """(float[6,2,4] x, float[2,4,3] past, float[4,1,3] kernel) => (float[2,4,7] y, float[2,4,3] next_past)
    <int64[1] newest = {-3}, int64[1] end = {9223372036854775807}, int64[1] axis = {2}>
    { t = Transpose<perm = [1, 2, 0]>(x)  joined = Concat<axis = 2>(past, t)
      next_past = Slice(joined, newest, end, axis)  y = Conv<group = 4>(joined, kernel) }"""
    graph = Lowered(
        "tiny", parse(text, random_weights({"kernel": (4, 1, 3)})), states=(State("past", "next_past", None),)
    )
    verify_untouched(SinkTransposes(), graph)


def test_the_map_turns_the_reference_too() -> None:
    states = {"past": np.arange(6).reshape(1, 3, 2), "other": np.ones(2)}
    found = Transposed((("past", (0, 2, 1)),)).apply(states)
    assert found["past"].tolist() == [[[0, 2, 4], [1, 3, 5]]]
    assert found["other"] is states["other"]
