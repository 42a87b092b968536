"""Judging one node: arithmetic on lengths, what nothing tracked reaches, and operators without a rule."""

import pytest

from compiler.analysis.case import Case
from compiler.analysis.facts import NUMBER, VALID, Fact
from compiler.analysis.interval import ANYTHING
from compiler.analysis.judge import judge
from compiler.analysis.layout import Side
from compiler.errors import Refused
from tests.kit.graphs import node_named, parse


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
