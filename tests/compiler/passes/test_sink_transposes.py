"""sink_transposes: transposes move behind what is computed entry by entry, until they meet."""

import pytest

from compiler.graph.stages import Lowered, State
from compiler.passes.sink_transposes import SinkTransposes
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse, random_weights

GATE = """(float[batch,6,8] x) => (float[batch,6,4] y)
{
    t = Transpose<perm = [0, 2, 1]>(x)
    a, b = Split<axis = 1, num_outputs = 2>(t)
    s = Sigmoid(b)
    g = Mul(a, s)
    y = Transpose<perm = [0, 2, 1]>(g)
}"""

CONVOLVED = """{
    t = Transpose<perm = [0, 2, 1]>(x)
    joined = Concat<axis = 2>(past, t)
    next_past = Slice(joined, newest, end, axis)
    frames = Transpose<perm = [0, 2, 1]>(joined)
    y = MatMul(frames, w)
}"""

CONTEXT = f"""(float[batch,6,4] x, float[batch,4,2] past, float[4,5] w)
    => (float[batch,8,5] y, float[batch,4,2] next_past)
<int64[1] newest = {{-2}}, int64[1] end = {{9223372036854775807}}, int64[1] axis = {{2}}>
{CONVOLVED}"""


def lowered_of(text: str, states: tuple[State, ...] = ()) -> Lowered:
    model = parse(text, random_weights({"w": (4, 5), "bias": (4, 1), "row": (6,)}))
    return Lowered("tiny", model, states=states, batch_axis="batch")


def test_two_that_meet_are_none() -> None:
    outcome = verify_pass(SinkTransposes(), lowered_of(GATE), tolerance=0.0, steps=2)
    assert ops_of(outcome.lowered.model) == ["Split", "Sigmoid", "Mul"]


def test_two_that_meet_are_one_where_they_differ() -> None:
    text = """(float[batch,2,3,4] x) => (float[batch,4,2,3] y)
    { a = Transpose<perm = [0, 2, 3, 1]>(x)  b = Relu(a)  y = Transpose<perm = [0, 2, 3, 1]>(b) }"""
    outcome = verify_pass(SinkTransposes(), lowered_of(text), tolerance=0.0, steps=2)
    assert ops_of(outcome.lowered.model) == ["Relu", "Transpose"]


def test_constants_are_spread_in_the_order_in_front() -> None:
    text = """(float[batch,6,4] x, float[4,1] bias, float[6] row) => (float[batch,4,6] y)
    { t = Transpose<perm = [0, 2, 1]>(x)  a = Add(t, bias)  y = Sub(row, a) }"""
    outcome = verify_pass(SinkTransposes(), lowered_of(text), tolerance=0.0, steps=2)
    assert ops_of(outcome.lowered.model) == ["Add", "Sub", "Transpose"]


def test_a_transpose_that_names_no_order_turns_all_axes() -> None:
    text = """(float[6,4] x) => (float[4,6] y) { t = Transpose(x)  y = Relu(t) }"""
    outcome = verify_pass(SinkTransposes(), Lowered("tiny", parse(text)), tolerance=0.0, steps=2)
    assert ops_of(outcome.lowered.model) == ["Relu", "Transpose"]


def test_a_short_cache_is_turned_in_place_of_what_is_joined() -> None:
    lowered = lowered_of(CONTEXT, (State("past", "next_past", None),))
    outcome = verify_pass(SinkTransposes(), lowered, tolerance=0.0)
    assert ops_of(outcome.lowered.model) == ["Transpose", "Concat", "Slice", "Transpose", "MatMul"]


def test_a_long_cache_is_not_turned() -> None:
    text = CONTEXT.replace("[batch,4,2] past", "[batch,4,40] past").replace("[batch,4,2] next", "[batch,4,40] next")
    text = text.replace("newest = {-2}", "newest = {-40}").replace("frames = Transpose<perm = [0, 2, 1]>(joined)", "")
    text = text.replace("MatMul(frames, w)", "ReduceSum(joined, axis)")
    verify_untouched(SinkTransposes(), lowered_of(text, (State("past", "next_past", None),)))


WIDE_CONTEXT = f"""(float[batch,16,16] x, float[batch,16,30] past, float[16,5] w)
    => (float[batch,46,5] y, float[batch,16,30] next_past)
<int64[1] newest = {{-30}}, int64[1] end = {{9223372036854775807}}, int64[1] axis = {{2}}>
{CONVOLVED}"""


def wide_context() -> Lowered:
    model = parse(WIDE_CONTEXT, random_weights({"w": (16, 5)}))
    return Lowered("tiny", model, states=(State("past", "next_past", None),), batch_axis="batch")


def test_what_is_saved_behind_a_concat_is_had_at_once() -> None:
    outcome = verify_pass(SinkTransposes(turns_states=False), wide_context(), tolerance=0.0)
    assert ops_of(outcome.lowered.model) == ["Transpose", "Concat", "Slice", "Transpose", "MatMul"]
    assert not outcome.refused


def test_moves_that_undo_each_other_end_with_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.sink_transposes._saved_behind", lambda node, order: 10_000)
    text = """(float[6,4] x, float[4,40] other) => (float[4,m] y, float[4,n] z)
    { t = Transpose(x)  joined = Concat<axis = 1>(t, other)  y = Softmax(joined)  z = Softmax<axis = 0>(joined) }"""
    [refusal] = SinkTransposes().apply(Lowered("tiny", parse(text))).refused
    assert refusal.reason.startswith("given up after 20 rounds, of which the last changed")


def test_nothing_is_turned_where_it_has_more_entries() -> None:
    text = "(float[1,4] x, float[4,6] wide) => (float[4,6] y) { t = Transpose(x)  y = Add(t, wide) }"
    verify_untouched(SinkTransposes(), Lowered("tiny", parse(text, random_weights({"wide": (4, 6)}))))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "y = Transpose<perm = [0, 2, 1]>(g)",
            "u = Softmax<axis = 1>(g)  z = Add(a, u)  y = Transpose<perm = [0, 2, 1]>(z)",
        ),
        ("y = Transpose<perm = [0, 2, 1]>(g)", "z = Add(t, t)  y = Add(z, z)"),
    ],
    ids=["an axis is worked along", "read twice"],
)
def test_meanings_stay_where_only_some_move(old: str, new: str) -> None:
    text = GATE.replace(old, new).replace("y)", "y)", 1)
    verify_pass(SinkTransposes(), lowered_of(text), tolerance=0.0, steps=2)


@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose<perm = [0, 2, 1]>(x)  y = Add(t, other)",
        "t = Transpose<perm = [0, 2, 1]>(x)  y = Softmax<axis = -1>(t)",
        "t = Transpose<perm = [0, 2, 1]>(x)  a = Relu(t)  b = Neg(t)  y = Concat<axis = 1>(a, b)",
        "y = Transpose<perm = [0, 2, 1]>(x)",
    ],
    ids=["another operand lies otherwise", "an axis is worked along", "two readers", "nothing behind it"],
)
def test_others_stay(body: str) -> None:
    text = "(float[batch,6,4] x, float[batch,4,6] other) => (float[batch,m,n] y) { " + body + " }"
    assert verify_untouched(SinkTransposes(), lowered_of(text)).rewritten == 0


def test_transposes_between_an_input_and_an_output_keep_both_names() -> None:
    text = "(float[batch,6,4] x) => (float[batch,6,4] y) { t = Transpose<perm = [0, 2, 1]>(x)  " + (
        "y = Transpose<perm = [0, 2, 1]>(t) }"
    )
    verify_untouched(SinkTransposes(), lowered_of(text))


def test_an_axis_that_is_not_followed_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.sink_transposes.ALONG_AN_AXIS", frozenset())
    monkeypatch.setattr("compiler.passes.sink_transposes.OF_ALIKE_SHAPES", frozenset({"Softmax"}))
    text = "(float[batch,6,4] x) => (float[batch,4,6] y) { t = Transpose<perm = [0, 2, 1]>(x)  y = Softmax(t) }"
    with pytest.raises(ContractBroken, match="meaning"):
        verify_pass(SinkTransposes(), lowered_of(text), tolerance=0.0, steps=2)
