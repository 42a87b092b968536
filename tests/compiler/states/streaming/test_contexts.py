"""Which states of one size are contexts, and why others are none."""

import pytest

from compiler.graph.stages import Lowered, Refusal, State
from compiler.states.streaming.contexts import find_context
from compiler.states.streaming.stable import Frames
from tests.kit.graphs import BATCH, parse

JOIN = "joined = Concat<axis = 1>(context, x)"


def lowered_of(body: str, frames: str = "5", context: str = "batch,3,4") -> Lowered:
    text = f"""(float[batch,{frames},4] x, float[{context}] context) => (float[a,b,c] y, float[d,e,f] next_context)
    <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] newest = {{-3}}, int64[1] five = {{5}},
     int64[1] eight = {{8}}, int64[1] end = {{9223372036854775807}}, int64[1] zero = {{0}}>
    {{ {body}  y = Tanh(joined) }}"""
    return Lowered("tiny", parse(text), states=(State("context", "next_context", None),), batch_axis=BATCH)


def found(lowered: Lowered) -> object:
    return find_context(lowered, lowered.states[0])


FED = {
    "Slice(joined, newest, end, one)": True,
    "Slice(joined, five, end, one)": True,
    "Slice(joined, newest, eight, one)": True,
    "Slice(x, newest, end, one)": True,
    "Slice(x, two, end, one)": True,
    "Slice(x, two, end, two)": False,
    "Slice(joined, two, end, one)": False,
    "Slice(joined, newest, end, one, two)": False,
    "Slice(joined, zero, end, one)": False,
    "Identity(joined)": False,
}


@pytest.mark.parametrize("fed", FED)
def test_the_newest_frames_are_fed_back(fed: str) -> None:
    context = found(lowered_of(f"{JOIN}  next_context = {fed}"))
    assert isinstance(context, tuple) is FED[fed]
    if isinstance(context, Refusal):
        assert "not the newest of the joined frames" in context.reason


def test_how_many_frames_there_are() -> None:
    context = found(lowered_of(f"{JOIN}  next_context = Slice(joined, newest, end, one)"))
    assert isinstance(context, tuple)
    assert context[1] == Frames(3, 5, 3, 5)
    assert (context[0].axis, context[0].joined.name, context[0].fed.name) == (1, "joined", "next_context")


def test_new_frames_may_be_of_any_number_but_then_what_is_fed_back_is_cut_from_all() -> None:
    assert isinstance(found(lowered_of(f"{JOIN}  next_context = Slice(joined, newest, end, one)", "frames")), tuple)
    assert isinstance(found(lowered_of(f"{JOIN}  next_context = Slice(x, newest, end, one)", "frames")), Refusal)


def test_rows_are_no_frames() -> None:
    lowered = lowered_of("joined = Concat<axis = 0>(context, x)  next_context = Slice(joined, newest, end, zero)",
                         context="3,5,4")  # fmt: skip
    assert isinstance(refusal := found(lowered), Refusal)
    assert "or rows are" in refusal.reason
    assert refusal.place.op == "Concat"


def test_a_state_that_nothing_is_joined_to_is_no_context() -> None:
    assert found(lowered_of("joined = Tanh(x)  next_context = Tanh(context)")) is None
