"""The registry: opsets, refusals by name, and one table that every module feeds."""

import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.registry import Versioned, named_refusal
from compiler.proof.propagation.judge import rule_of
from compiler.proof.rules import MODULES, RULES
from tests.kit.offline import offline


def test_entries_hold_for_a_range_of_opsets() -> None:
    entry = Versioned(lambda case: case.verdict("X", "x"), since=13, until=17)
    assert [entry.covers(opset) for opset in (12, 13, 17, 18)] == [False, True, True, False]


def test_no_module_overwrites_the_rules_of_another() -> None:
    assert sum(len(module.TABLE) for module in MODULES) == len(RULES)


@pytest.mark.parametrize(
    "op", ["Add", "MatMul", "Softmax", "Conv", "Reshape", "Gather", "LSTM", "MaxPool", "ReduceMean"]
)
def test_common_operators_have_rules_in_every_opset(op: str) -> None:
    assert all(rule_of("ai.onnx", op, opset) is not None for opset in range(17, 24))
    assert rule_of("com.acme", op, 20) is None


def test_an_operator_refused_by_name_says_why() -> None:
    entry = named_refusal("draws numbers", "pass them in")
    assert entry.refusal == "draws numbers"
    lowered = offline("(float[batch,time,2] x) => (float[batch,time,2] y) { n = RandomNormalLike(x)  y = Add(x, n) }")
    with pytest.raises(Refused, match="random"):
        PadAxes().apply(lowered)
