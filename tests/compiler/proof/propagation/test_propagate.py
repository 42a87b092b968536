"""Facts spread from the inputs to every value; refusals name node, axis and the way there."""

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.proof.facts.facts import Fact
from compiler.proof.facts.interval import ANYTHING
from compiler.proof.facts.layout import Side
from compiler.proof.propagation.propagate import Axes, chain_to, input_facts, propagate
from tests.kit.graphs import parse

AXES = Axes("batch", {"time": Side.LEFT})
TEXT = """(float[batch,time,4] x, int64[batch,time] ids, float[4] w) => (float[batch,time,4] y)
    { a = Relu(x)  b = Mul(a, w)  y = Add(b, a) }"""


def test_inputs_hold_anything_in_their_padding() -> None:
    graph = parse(TEXT)
    facts = input_facts(graph, AXES)
    x, ids, w = graph.graph.inputs
    assert facts[x].content({1}) == ANYTHING
    assert facts[x].rows_axis == 0
    assert not facts[ids].content({1}).nan
    assert facts[ids].content({1}).high > 1e18
    assert facts[w] == Fact()
    clean = input_facts(graph, Axes("batch", {"time": Side.LEFT}, frozenset(), frozenset({"x"})))
    assert clean[x].content({1}).is_zero


def test_every_value_that_is_reached_has_a_fact() -> None:
    graph = parse(TEXT)
    derivation = propagate(graph, AXES, input_facts(graph, AXES))
    assert [each.node.op_type for each in derivation.judged] == ["Relu", "Mul", "Add"]
    assert derivation.fact(graph.graph.outputs[0]).padded == (1,)
    assert (derivation.fills, derivation.rewrites) == (0, 0)
    assert [node.op_type for node in chain_to(derivation, graph.graph.outputs[0])] == ["Relu", "Mul", "Add"]


def test_a_batch_inside_an_expression_is_refused() -> None:
    graph = parse("(float[batch,time] x) => (float[n,time] y) { y = Relu(x) }")
    graph.graph.inputs[0].shape = ir.Shape(["2*batch", "time"])
    with pytest.raises(Refused, match="axis of"):
        input_facts(graph, AXES)


def test_a_tolerant_derivation_goes_on_beside_a_refusal() -> None:
    graph = parse("""(float[batch,time,4] x) => (float[batch,time,4] y)
        { a = com.acme.Turn(x)  b = Relu(a)  y = Neg(x) }""")
    with pytest.raises(Refused) as raised:
        propagate(graph, AXES, input_facts(graph, AXES))
    assert raised.value.place.axis == "batch, time"
    derivation = propagate(graph, AXES, input_facts(graph, AXES), tolerant=True)
    assert [each.node.op_type for each in derivation.judged] == ["Neg"]
    assert len(derivation.refusals) == 1


def test_nodes_that_padding_has_written_are_not_judged_again() -> None:
    graph = parse(TEXT)
    node = next(iter(graph.graph))
    node.metadata_props["slipway.pass"] = "pad_axes"
    start = input_facts(graph, AXES)
    start[node.outputs[0]] = start[graph.graph.inputs[0]].filled(1, 0.0)
    derivation = propagate(graph, AXES, start, written_by="pad_axes")
    assert derivation.judged[0].node.op_type == "Mul"
    (given, *_) = derivation.judged[0].given
    assert given is not None and given.padding(1).is_zero
