"""Steps are run on values that are worth running them on."""

import copy
import json
from typing import Any
from unittest import mock

import onnx
import onnx_ir as ir
import pytest

from compiler.checker import replay as replay_module
from compiler.checker.check import check
from compiler.checker.graph import Graph, Part, Rejected
from compiler.checker.replay import Replay
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.passes.pad_axes import PadAxes
from tests.compiler.passes.test_pad_axes_offline import ACCEPTED, WEIGHTS, graph
from tests.kit.graphs import copy_of, parse, random_weights, streaming
from tests.kit.offline import offline


def replayed(body: str) -> tuple[Replay, dict[str, Any], onnx.ModelProto]:
    """A padded graph ready for replay, and its certificate."""
    return replayed_of(offline(graph(body), WEIGHTS))


def replayed_of(lowered: Lowered) -> tuple[Replay, dict[str, Any], onnx.ModelProto]:
    graphs.infer_shapes(lowered.model)
    before = ir.serde.serialize_model(graphs.clone(lowered.model))
    outcome = PadAxes().apply(lowered)
    after = ir.serde.serialize_model(outcome.lowered.model)
    certificate = json.loads(json.dumps(outcome.records[0]))
    return Replay(Graph(before), Graph(after), certificate, 2), certificate, after


CAUSAL = ACCEPTED["causal attention"][0]


def test_every_step_of_a_proof_survives() -> None:
    steps, certificate, _ = replayed(CAUSAL)
    for record in certificate["records"]:
        steps.replay(record)


@pytest.mark.parametrize("op", ["Softmax", "MatMul", "Where", "LayerNormalization"])
def test_a_step_that_claims_zero_padding_does_not(op: str) -> None:
    steps, certificate, _ = replayed(CAUSAL)
    record = copy.deepcopy([each for each in certificate["records"] if each["op"] == op][-1])
    for content in record["out"][0]["contents"]:
        if content[0]:
            content[1:] = [5.0, 5.0, False]
    with pytest.raises(Rejected, match="does not lie within"):
        steps.replay(record)


def test_a_step_with_an_output_without_a_name_is_run() -> None:
    text = """(float[batch,time,4] x, float[1,12,4] w, float[1,12,4] r) => (float[batch,1,4] y)
        { turned = Transpose<perm = [1, 0, 2]>(x)  heard, last = GRU<hidden_size = 4>(turned, w, r)
          y = Transpose<perm = [1, 0, 2]>(last) }"""
    lowered = offline(text, random_weights({"w": (1, 12, 4), "r": (1, 12, 4)}))
    (gru,) = [node for node in lowered.model.graph if node.op_type == "GRU"]
    gru.outputs[0].name = ""
    steps, certificate, _ = replayed_of(lowered)
    (record,) = [each for each in certificate["records"] if each["op"] == "GRU"]
    steps.replay(record)
    forged = copy.deepcopy(record)
    forged["out"][1]["contents"][0][1:] = [5.0, 5.0, False]
    with pytest.raises(Rejected, match="does not lie within"):
        steps.replay(forged)


def test_values_that_follow_from_sizes_are_told_apart() -> None:
    steps, _, _ = replayed(CAUSAL)
    assert steps.is_size("seen") and not steps.is_size("s")
    assert steps.is_fixed("w") and not steps.is_fixed("seen")
    assert steps.computed("seen") is None, "it reads a length"
    assert steps.element_type("seen") == onnx.TensorProto.BOOL


def test_sums_of_probabilities_are_run_with_their_softmax() -> None:
    """One bound on the weights alone would allow a sum of as many as there are keys."""
    steps, certificate, _ = replayed(CAUSAL)
    record = next(each for each in certificate["records"] if each["op"] == "MatMul" and "p" in str(each["inputs"]))
    opened = steps.opened(record)
    assert "p" in record["inputs"] and opened["inputs"] == ["z", "h"]


def test_a_step_that_reads_what_was_put_in_place_of_another_is_run() -> None:
    """What takes the place of an input has another name in the graph before; the row alone is given the same."""
    lowered = copy_of(streaming())
    graphs.infer_shapes(lowered.model)
    before = ir.serde.serialize_model(graphs.clone(lowered.model))
    outcome = PadAxes().apply(lowered)
    certificate = json.loads(json.dumps(outcome.records[0]))
    steps = Replay(Graph(before), Graph(ir.serde.serialize_model(outcome.lowered.model)), certificate, 2)
    record = next(each for each in certificate["records"] if each["op"] == "Concat" and "past_filled" in each["inputs"])
    assert steps.was["past_filled"] == "past"
    steps.replay(record)
    for content in record["out"][0]["contents"]:
        content[1:] = [5.0, 5.0, False]
    with pytest.raises(Rejected, match="does not lie within"):
        steps.replay(record)


@pytest.mark.parametrize("filled", ["m = Less(zero, zero)  f = Where(m, x, low)", "n = Shape(x)  f = Expand(low, n)"])
def test_a_row_that_is_rounding_alone_refutes_nothing(filled: str) -> None:
    """The variance of what a mask filled in is nought in exact numbers and anything in single precision."""
    steps, certificate, _ = replayed(
        f"""{filled}  t = Transpose<perm = [0, 2, 1]>(f)
        z = InstanceNormalization(t, gamma, beta)  y = Transpose<perm = [0, 2, 1]>(z)"""
    )
    assert "InstanceNormalization" in {record["op"] for record in certificate["records"]}
    for record in certificate["records"]:
        steps.replay(record)


def test_what_no_length_reaches_is_run_twice_and_what_is_drawn_at_random_is_not_alike() -> None:
    model = parse("""(float[batch,4] x) => (float[batch,4] y) {
        drawn = RandomUniform<shape = [4]>()  low = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
        double = Add(low, low)  both = Mul(drawn, double)  y = Mul(x, both) }""")
    written = Graph(ir.serde.serialize_model(model))
    keys = ("sides", "length_inputs", "mask_inputs", "becomes", "minimum")
    steps = Replay(written, written, {"batch": "batch", "records": [], **{key: {} for key in keys}}, 2)
    double = steps.alike("double")
    assert double is not None and double.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert steps.alike("both") is None
    with mock.patch.object(Part, "run", autospec=True, side_effect=Part.run) as run:
        assert steps.moves("both")
    assert run.call_count <= 2


def test_what_is_as_large_as_weights_is_computed_anew_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "MOST_KEPT", 3)
    model = parse("""(float[batch,4] x) => (float[batch,4] y) {
        low = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()  double = Add(low, low)  y = Mul(x, double) }""")
    written = Graph(ir.serde.serialize_model(model))
    keys = ("sides", "length_inputs", "mask_inputs", "becomes", "minimum")
    steps = Replay(written, written, {"batch": "batch", "records": [], **{key: {} for key in keys}}, 2)
    for _ in range(2):
        double = steps.alike("double")
        assert double is not None and double.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert not steps.numbers


def test_no_more_slots_are_drawn_than_are_proved() -> None:
    text = """(float[batch,time,2] x, float[batch,4,2] held) => (float[batch,time,2] y)
        <int64[1] zero = {0}, int64[1] axis = {1}> {
        n = Shape<start = 1, end = 2>(x)  cut = Slice(held, zero, n, axis)  y = Add(x, cut) }"""
    lowered = Lowered("net", parse(text), batch_axis="batch", padded_axes=(PaddedAxis("time", "time_length"),))
    before = ir.serde.serialize_model(lowered.model)
    outcome = PadAxes().apply(lowered)
    after, (record,) = ir.serde.serialize_model(outcome.lowered.model), outcome.records
    assert record["maximum"] == {"time": 4}
    assert check(before, after, record, seeds=8) == 3
    with pytest.raises(Rejected, match="has shape"):
        check(before, after, {key: value for key, value in record.items() if key != "maximum"}, seeds=8)
