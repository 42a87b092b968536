"""Operators without a rule: refused by name as soon as something padded reaches them, each with a cure."""

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph.model import symbol
from compiler.graph.operators.traits import RANDOM
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, make_fact
from compiler.proof.facts.interval import ANYTHING
from compiler.proof.facts.layout import Rows, Side
from compiler.proof.propagation.judge import judge
from compiler.proof.rules.refused import REFUSED
from tests.kit.contract import verify_refusal
from tests.kit.offline import offline

BY_ROWS = make_fact({0: (Rows(symbol("batch")),)}, lambda region: ANYTHING)


@pytest.mark.parametrize(("op", "why"), [(op, why) for why, ops in REFUSED.items() for op in ops])
def test_every_operator_says_why_and_what_to_do(op: str, why: tuple[str, str]) -> None:
    node = ir.node(op, [ir.val("x", ir.DataType.FLOAT, ["batch", 4])], version=23)
    with pytest.raises(Refused) as raised:
        judge(Case(node, [BY_ROWS], "batch", {"time": Side.LEFT}))
    assert (raised.value.message, raised.value.cure) == (f"{op} {why[0]}", why[1])
    untracked = Case(node, [Fact()], "batch", {"time": Side.LEFT})
    if op in RANDOM:
        with pytest.raises(Refused):
            judge(untracked)
    else:
        assert judge(untracked).rule == "PL"


def test_random_numbers_that_read_nothing_are_refused() -> None:
    text = """(float[batch,time,2] x) => (float[batch,time,2] y)
    { n = RandomNormal<shape = [2], dtype = 1>()  y = Add(x, n) }"""
    expected = {"op": "RandomNormal", "axis": ""}
    verify_refusal(PadAxes(), offline(text), message="draws random numbers", cure="as an input", **expected)


def test_a_graph_is_refused_with_node_and_cure() -> None:
    lowered = offline("(float[batch,time,2] x) => (float[batch,time,2] y) { n = RandomNormalLike(x)  y = Add(x, n) }")
    expected = {"op": "RandomNormalLike", "axis": "batch, time"}
    verify_refusal(PadAxes(), lowered, message="draws random numbers", cure="as an input", **expected)
