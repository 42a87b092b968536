"""A graph while it is being padded: what facts ask for is written, each once."""

import numpy as np
import pytest

from compiler.errors import InternalError, Refused
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.proof.facts.layout import Side
from compiler.proof.facts.lengths import infer_settled
from compiler.proof.padding.padded_graph import PaddedGraph
from compiler.proof.propagation.propagate import Axes
from tests.kit.graphs import ops_of, parse
from tests.kit.offline import offline, verify_offline

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


def test_legal_indices_are_not_what_the_same_value_is_filled_with() -> None:
    """Indices up to 1 are made legal for a table, and filled with 1 along axis 1 for a product."""
    text = """(int64[batch,time] x, float[2,4] table) => (float[batch,time,4] y, int64[batch,1] z)
        <int64[1] one = {1}, int64 three = {3}, int64 four = {4}>
        { a = Add(x, three)  i = Div(a, four)  y = Gather(table, i)  z = ReduceProd<keepdims = 1>(i, one) }"""
    outcome = verify_offline(offline(text, {"table": np.arange(8, dtype=np.float32).reshape(2, 4)}))
    assert {"Mod", "Where"} <= set(ops_of(outcome.lowered.model))


def test_one_node_alone_is_written_and_judged_again() -> None:
    text = "(float[batch,4,time] x, float[1,time,3] m) => (float[batch,4,3] y) { y = MatMul(x, m) }"
    assert ops_of(verify_offline(offline(text)).lowered.model).count("Where") == 2


def test_the_second_output_of_a_node_may_be_the_only_one_that_is_written_per_row() -> None:
    text = """(float[batch,time,4] x, float[4,4] same) => (float[batch,time,4] y, float[batch,r] z)
        <int64[1] four = {4}>
        { y = Relu(x)  b = Shape<start = 0, end = 1>(x)  n = Shape<start = 1, end = 2>(x)  w = Concat<axis = 0>(b, four)
          i = Mod(n, four)  g = Gather(same, i)  e = Expand(g, w)  u, z = Split<axis = 1, num_outputs = 2>(e) }"""
    outcome = verify_offline(offline(text, {"same": np.ones((4, 4), np.float32)}))
    assert outcome.records[0]["becomes"] == {"z": "z"}


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
