"""The rule table as a whole: every entry is tried, every other operator is refused by name."""

import re

import onnx
import pytest

from compiler.analysis.rules import RULES
from compiler.errors import Refused
from tests.compiler.analysis.rules import (
    test_contraction,
    test_elementwise,
    test_joining,
    test_length,
    test_lookup,
    test_movement,
    test_normalization,
)
from tests.kit.graphs import OPSET
from tests.kit.verdicts import verdict_of

FAMILIES = (
    test_contraction, test_elementwise, test_joining, test_length, test_lookup, test_movement, test_normalization
)  # fmt: skip

NEVER_REFUSE = frozenset(
    {"Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "Identity", "HardSwish", "Gelu", "Softplus", "Sqrt", "Exp", "Log",
     "Reciprocal", "Sin", "Cos", "Floor", "Ceil", "IsNaN", "Not", "Transpose", "Shape"}
)  # fmt: skip
"""Total functions of one input, and movement without conditions."""


def operators_of(lines: list[str]) -> set[str]:
    """The operator that makes `out` in each line."""
    found = [re.search(r"\bout\b[^=]*= (\w+)", line) for line in lines]
    return {match.group(1) for match in found if match is not None}


def test_every_entry_of_the_table_has_a_case_that_it_accepts() -> None:
    accepted = operators_of([case.line for family in FAMILIES for case in family.ACCEPTED])
    assert {op for _, op in RULES} <= accepted


def test_every_entry_of_the_table_has_a_case_that_it_refuses() -> None:
    refused = operators_of([line for family in FAMILIES for line, _ in family.REFUSED])
    assert {op for _, op in RULES} - NEVER_REFUSE <= refused


def unary_operators() -> list[str]:
    """Standard operators that take one float tensor and nothing else, and are not in the table."""
    found = []
    for schema in onnx.defs.get_all_schemas_with_history():
        one = schema.domain == "" and schema.since_version <= OPSET and schema.min_input <= 1 <= schema.max_input
        required = any(attribute.required for attribute in schema.attributes.values())
        if one and not required and not schema.deprecated and "tensor(float)" in schema.inputs[0].types:
            found.append(schema.name)
    return sorted(set(found) - {op for _, op in RULES} - {"If", "Loop", "Scan", "LpPool"})


@pytest.mark.parametrize("op", unary_operators())
def test_every_other_operator_is_refused_by_name(op: str) -> None:
    with pytest.raises(Refused, match=rf"no padding rule for operator {op}\b") as raised:
        verdict_of(f"out = {op}(j)")
    assert raised.value.place.op == op
    assert "rule table" in raised.value.cure


def test_what_is_not_padded_needs_no_rule() -> None:
    verdict_of("k = com.acme.Turn(x)  out = Relu(j)")
