"""A graph while it is being padded: what facts ask for is written, each once."""

import pytest

from compiler.errors import InternalError, Refused
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.proof.facts.layout import Side
from compiler.proof.facts.lengths import infer_settled
from compiler.proof.padding.padded_graph import PaddedGraph
from compiler.proof.propagation.propagate import Axes
from tests.kit.graphs import ops_of, parse

SOFTMAX = "t = Transpose<perm = [0, 2, 1]>(x)  y = Softmax<axis = -1>(t)"
TWICE = "t = Transpose<perm = [0, 2, 1]>(x)  a = Softmax<axis = -1>(t)  b = LogSoftmax<axis = -1>(t)  y = Add(a, b)"


def work_on(body: str) -> tuple[PaddedGraph, Lowered]:
    text = f"(float[batch,time,4] x) => (float[batch,4,time] y) {{ {body} }}"
    lowered = Lowered("tiny", parse(text), batch_axis="batch", padded_axes=(PaddedAxis("time", "time_length"),))
    axes = Axes("batch", {"time": Side.LEFT})
    infer_settled(lowered.model, axes.behind)
    return PaddedGraph(lowered, axes, "pad_axes"), lowered


def test_a_need_is_written_in_front_of_its_node_and_nothing_before() -> None:
    work, lowered = work_on(SOFTMAX)
    derivation = work.derive()
    assert ops_of(lowered.model).count("Where") == 0
    work.write(derivation)
    (filled,) = [node for node in lowered.model.graph if node.op_type == "Where"]
    (softmax,) = [node for node in lowered.model.graph if node.op_type == "Softmax"]
    assert softmax.inputs[0] is filled.outputs[0]
    assert filled.metadata_props["slipway.pass"] == "pad_axes"
    assert [step["op"] for step in work.steps] == ["Transpose", "Softmax"]


def test_what_two_nodes_need_is_written_once() -> None:
    work, lowered = work_on(TWICE)
    work.write(work.derive())
    assert ops_of(lowered.model).count("Where") == 1


def test_what_cannot_be_derived_is_refused_or_told() -> None:
    body = "y = Det(x)"
    with pytest.raises(Refused, match="Det"):
        work_on(body)[0].derive()
    assert [refusal.place.op for refusal in work_on(body)[0].derive(tolerant=True).refusals] == ["Det"]


def test_rows_that_are_written_for_ever_are_an_error_that_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    work, _ = work_on(SOFTMAX)
    monkeypatch.setattr(work, "_gives_rows", lambda judged: True)
    monkeypatch.setattr(work, "_write_node", lambda judged: None)
    with pytest.raises(InternalError, match="gave up after 3 rounds") as failed:
        work.derive()
    assert failed.value.place.op == "Transpose"
