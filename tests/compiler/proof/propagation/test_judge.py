"""Judging one node: arithmetic on lengths, what nothing tracked reaches, and operators without a rule."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph.model import symbol
from compiler.graph.operators.traits import NEVER_EMPTY
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, VALID, Fact, make_fact
from compiler.proof.facts.interval import ANYTHING
from compiler.proof.facts.layout import Frames, Rows, Segment, Side
from compiler.proof.propagation.judge import judge
from tests.kit.graphs import node_named, parse
from tests.kit.offline import offline, verify_offline


def case(text: str, output: str, *facts: Fact) -> Case:
    """The case of one node of a graph."""
    return Case(node_named(parse(text), output), facts, "batch", {"time": Side.LEFT})


LENGTHS = """(float[batch,time] x, int64[1] c) => (int64[1] y)
    { s = Shape<start = 1, end = 2>(x)  t = Add(s, s)  y = Sub(s, s) }"""


def test_arithmetic_on_lengths_gives_a_number_until_none_is_left() -> None:
    assert judge(case(LENGTHS, "t", NUMBER, NUMBER)).outputs == (NUMBER,)
    assert judge(case(LENGTHS, "y", NUMBER, NUMBER)).outputs[0].is_plain


def test_what_nothing_tracked_reaches_needs_no_rule() -> None:
    text = "(float[4] x) => (float[4] y) { y = com.acme.Turn(x) }"
    assert judge(case(text, "y", Fact())).rule == "PL"
    assert not judge(case(text, "y", Fact(contents=((VALID, ANYTHING),)))).outputs[0].valid.is_finite


def test_an_operator_without_a_rule_is_refused_with_its_opset() -> None:
    text = "(float[4] x) => (float[4] y) { y = com.acme.Turn(x) }"
    with pytest.raises(Refused, match=r"com[.]acme::Turn of opset 1"):
        judge(case(text, "y", NUMBER))


@pytest.mark.parametrize(
    ("shapes", "node"),
    [
        (("float[batch,8]", "float[8,batch]"), "y = MatMul(x, z)"),
        (("float[batch,1]", "float[1,batch]"), "y = Add(x, z)"),
    ],
)
def test_rows_that_meet_rows_are_refused(shapes: tuple[str, str], node: str) -> None:
    text = f"({shapes[0]} x, {shapes[1]} z) => (float[batch,batch] y) {{ {node} }}"
    rows = (Rows(symbol("batch")),)
    facts = (make_fact({0: rows}, lambda region: ANYTHING), make_fact({1: rows}, lambda region: ANYTHING))
    with pytest.raises(Refused, match="meet every other one"):
        judge(case(text, "y", *facts))


def test_nothing_tracked_makes_no_tracked_axis() -> None:
    text = """(float[rows,other] x) => (float[q,r] y) <int64[1] three = {3}, int64[3] zero = {0, 0, 0}>
        { n = Shape<start = 1, end = 2>(x)  m = Neg(n)  k = Mod(m, three)  p = Concat<axis = 0>(zero, k)
        y = Pad(x, p) }"""
    assert judge(case(text, "y", Fact(), Fact())).outputs[0].is_plain


def test_fewer_entries_than_none_are_refused_where_nothing_is_tracked() -> None:
    turned = "ConvTranspose<kernel_shape = [1], pads = [3, 3]>(x, w)"
    text = f"(float[1,4,2] x) => (float[p,q,r] y) <float[4,4,1] w> {{ y = {turned} }}"
    with pytest.raises(Refused, match="more entries along an axis"):
        judge(case(text, "y", Fact(), Fact()))


def test_axes_of_different_sizes_never_meet() -> None:
    text = "(float[1,4] x, float[1,3] z) => (float[p,q] y) { y = Sub(x, z) }"
    with pytest.raises(Refused, match="axes of 3 and 4 entries never runs"):
        judge(case(text, "y", Fact(), Fact()))
    fine = "(float[5,4] x, float[5,1] z) => (float[p,q] y) { y = Sub(x, z) }"
    assert judge(case(fine, "y", Fact(), Fact())).outputs[0].is_plain


def test_a_tensor_of_which_not_even_the_axes_are_counted_is_refused() -> None:
    rows = make_fact({0: (Rows(symbol("batch")),)}, lambda region: ANYTHING)
    given = case("(float[batch,time,4] x) => (float[p,q,r] y) { y = Relu(x) }", "y", rows)
    given.node.outputs[0].shape = None
    with pytest.raises(Refused, match="does not know how many axes"):
        judge(given)


@pytest.mark.parametrize("kind", ["bfloat16", "float8e4m3fn", "int4"])
def test_types_that_no_run_hands_out_are_refused(kind: str) -> None:
    to = {"bfloat16": 16, "float8e4m3fn": 17, "int4": 22}[kind]
    text = f"(float[batch,4] x) => ({kind}[batch,4] y) {{ y = Cast<to = {to}>(x) }}"
    with pytest.raises(Refused, match=f"Cast computes in {kind.upper()}, .*; load the model in float32"):
        judge(case(text, "y", make_fact({0: (Rows(symbol("batch")),)}, lambda region: ANYTHING)))
    assert judge(case(text, "y", Fact())).outputs[0].is_plain


def test_a_size_that_two_reasons_ask_for_is_named_once() -> None:
    frames = (Frames((Segment(symbol("time")),)),)
    facts = (make_fact({0: (Rows(symbol("batch")),), 2: frames}, lambda region: ANYTHING),)
    pool = "y = MaxPool<kernel_shape = [3], pads = [1, 1]>(x)"
    verdict = judge(case(f"(float[batch,2,time] x) => (float[p,q,r] y) {{ {pool} }}", "y", *facts))
    assert verdict.at_least_one == (symbol("time"),)


RECURRENT = "(float[3,{rows},4] x, float[1,{gates},4] w, float[1,{gates},4] r) => (float[3,1,{rows},4] y) "
NEEDY = {
    "Einsum": '(float[{rows},2,4] x) => (float[{rows},2,2] y) {{ y = Einsum<equation = "abc,adc->abd">(x, x) }}',
    "GRU": RECURRENT.replace("{gates}", "12") + "{{ y = GRU<hidden_size = 4>(x, w, r) }}",
    "InstanceNormalization": "(float[1,4,{rows}] x, float[4] s) => (float[1,4,{rows}] y) "
    "{{ y = InstanceNormalization(x, s, s) }}",
    "LSTM": RECURRENT.replace("{gates}", "16") + "{{ y = LSTM<hidden_size = 4>(x, w, r) }}",
    "RNN": RECURRENT.replace("{gates}", "4") + "{{ y = RNN<hidden_size = 4>(x, w, r) }}",
}
"""Operators whose kernels end the process where an axis of data has no entry, which nobody can catch."""


def test_every_operator_that_ends_the_process_without_entries_is_tried() -> None:
    assert NEEDY.keys() == NEVER_EMPTY


@pytest.mark.parametrize("op", NEEDY)
def test_data_without_entries_is_refused_where_it_ends_the_process(op: str) -> None:
    empty = NEEDY[op].format(rows=0)
    facts = [Fact() for _ in node_named(parse(empty), "y").inputs]
    with pytest.raises(Refused, match=f"{op} needs more entries along an axis"):
        judge(case(empty, "y", *facts))
    judge(case(NEEDY[op].format(rows=2), "y", *facts))


def test_chunks_of_time_are_one_or_more_where_none_ends_the_process() -> None:
    text = """(float[batch,time,4] x, float[4,4] w) => (float[batch,a,4] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[3] chunks = {-1, 3, 4},
         int64[2] last = {-1, 4}>
        { s = Shape<start = 1, end = 2>(x)  rows = Shape<start = 0, end = 1>(x)  m = Div(s, three)  k = Mul(m, three)
          p = Slice(x, zero, k, one)  c = Reshape(p, chunks)  e = Einsum<equation = "abc,cd->abd">(c, w)
          back = Concat<axis = 0>(rows, last)  y = Reshape(e, back) }"""
    outcome = verify_offline(offline(text, {"w": np.eye(4, dtype=np.float32)}))
    assert outcome.records[0]["minimum"] == {"time": 3}
