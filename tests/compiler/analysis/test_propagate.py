"""propagate: facts of a whole graph, in any order of lookups, and where they come from."""

import pytest

from compiler.analysis.facts import ANYTHING, ZERO
from compiler.analysis.propagate import input_facts, propagate
from compiler.errors import Refused
from tests.kit.graphs import node_named, parse, streaming


def test_inputs_hold_anything_in_their_padding() -> None:
    model = streaming(two_caches=True).model
    facts = input_facts(model, "cache", 6)
    assert {str(value.name) for value in facts} == {"past", "past_values"}
    assert {(fact.axis, fact.fill, fact.segments[0].slots) for fact in facts.values()} == {(1, ANYTHING, 6)}


def test_a_stream_is_judged_node_by_node() -> None:
    model = streaming().model
    derivation = propagate(model, "cache", input_facts(model, "cache", 6))
    rules = {node.outputs[0].name: verdict.rule for node, verdict in derivation.verdicts}
    assert rules["next_past"] == "CC1"
    assert rules["rows"] == "LK1"
    assert rules["weights"] == "SM2"
    assert "y" not in rules
    assert str(derivation.facts[node_named(model, "rows").outputs[0]]).startswith("axis 1: [cache of 6] ++ [2 of 2]")


def test_a_table_may_be_looked_up_before_the_axis_is_joined() -> None:
    text = """(float[batch,2,4] x, float[batch,cache,4] past, float[1,16,4] table) => (float[batch,k,4] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
    {
        old = Shape<start = 1, end = 2>(past)
        length = Add(old, two)
        rows = Slice(table, zero, length, one)
        joined = Concat<axis = 1>(past, x)
        y = Add(joined, rows)
    }"""
    model = parse(text)
    derivation = propagate(model, "cache", input_facts(model, "cache", 6))
    assert [node.outputs[0].name for node, _ in derivation.verdicts] == ["old", "length", "rows", "joined", "y"]


def test_a_table_that_no_axis_has_the_length_of_is_refused_in_the_end() -> None:
    text = """(float[batch,cache,4] past, float[1,16,4] table) => (float[1,k,4] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
    { old = Shape<start = 1, end = 2>(past)  more = Add(old, two)  y = Slice(table, zero, more, one) }"""
    model = parse(text)
    with pytest.raises(Refused, match="no joined axis has") as raised:
        propagate(model, "cache", input_facts(model, "cache", 6))
    assert raised.value.place.node == "y_slice"


def test_records_are_certificates() -> None:
    model = streaming().model
    start = input_facts(model, "cache", 6)
    records = propagate(model, "cache", start).records()
    assert all(set(record) == {"node", "op", "rule", "in", "out", "action", "reason", "source"} for record in records)
    assert all(record["source"].startswith("tiny.py:") for record in records)
    assert ZERO.is_zero
