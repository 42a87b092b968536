"""Asks the rule table about one line of a tiny graph whose value `j` is [batch, cache + 2, 4], padded along axis 1."""

import dataclasses

import numpy as np
import pytest

from compiler.analysis.facts import ANYTHING, FINITE, ZERO, Fill, Verdict
from compiler.analysis.propagate import input_facts, propagate
from compiler.errors import Refused
from compiler.stages import Array
from tests.kit.graphs import node_named, parse

CONSTANTS: dict[str, Array] = {
    "w": np.ones((4, 3), np.float32), "row": np.ones(4, np.float32), "zeros": np.zeros(4, np.float32),
    "infinite": np.array([np.inf], np.float32), "scalar": np.array(2, np.float32), "tall": np.ones((6, 4), np.float32),
    "ids": np.array([0, 2], np.int64), "table": np.ones((1, 16, 4), np.float32), "one_value": np.ones(1, np.float32),
    "kinds": np.array([True]),
    **{name: np.array([number], np.int64) for name, number in
       {"zero": 0, "one": 1, "two": 2, "three": 3, "newest": -2, "third": -3, "end": np.iinfo(np.int64).max}.items()},
    "none": np.zeros(0, np.int64), "unit": np.array(1, np.float32), "flat": np.array([-1, 4], np.int64),
    "split": np.array([0, -1, 2, 2], np.int64),
}  # fmt: skip

FILLS: dict[str, Fill] = {"zero": ZERO, "finite": FINITE, "any": ANYTHING}


@dataclasses.dataclass(frozen=True)
class Accepts:
    """One line that a rule accepts.

    Attributes:
        line: makes `out`.
        rule: identifier.
        axis: padded axis of the result, or None when nothing is padded.
        fills: fill of the result for zero, finite and any padding of `j`.
        action: what the node needs.
    """

    line: str
    rule: str
    axis: int | None = 1
    fills: str = "zero finite any"
    action: str = "none"


def verdict_of(line: str, fill: Fill = ZERO) -> Verdict:
    """The verdict on the node that makes `out`."""
    model = parse(
        "(float[batch,2,4] x, float[batch,cache,4] past, float[batch,1,4] spread, bool[batch,1,4] chosen, "
        "int64[batch,cache,4] whole, "
        + ", ".join(f"float[a] {name}" for name in CONSTANTS)
        + f") => (float[q] out) {{ j = Concat<axis = 1>(past, x)  length = Shape<start = 1, end = 2>(j)  {line} }}",
        CONSTANTS,
    )
    facts = input_facts(model, "cache", 6)
    start = {value: dataclasses.replace(fact, fill=fill) for value, fact in facts.items()}
    derivation = propagate(model, "cache", start)
    return dict(derivation.verdicts)[node_named(model, "out")]


def check_accepted(case: Accepts) -> None:
    """Rule, axis and action, and the fill for every content of the padding."""
    for given, expected in zip(FILLS.values(), case.fills.split(), strict=True):
        verdict = verdict_of(case.line, given)
        assert (verdict.rule, verdict.fact.axis, verdict.action.value) == (case.rule, case.axis, case.action), verdict
        if case.axis is not None:
            assert verdict.fact.fill == FILLS[expected], f"{given} -> {verdict.fact.fill}"


def check_refused(line: str, message: str) -> None:
    """The refusal says why, and names operator, node, axis and line."""
    with pytest.raises(Refused) as raised:
        verdict_of(line)
    refused = raised.value
    assert message in refused.message, refused
    assert refused.cure, refused
    assert refused.place.op, refused
    assert refused.place.node, refused
    assert refused.place.axis == "cache", refused
    assert refused.place.source.startswith("tiny.py:"), refused
