"""An operator that no rule knows is refused by name; a rule of three lines, and a line for its axes, let it through."""

import dataclasses
import json

import onnx_ir as ir
import pytest
from onnx_shape_inference import ShapeInferenceContext, registry

from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, PaddedAxis
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Verdict
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.rules import RULES
from compiler.proof.rules.elementwise import mapped
from tests.kit.offline import check_padded

OPERATOR = ("ai.onnx.ml", "Scaler")
"""Subtracts a number and multiplies by another: an operator that speech models do not have, and no rule knows."""

TEXT = """<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 3]>
toy (float[batch,time,4] x) => (float[batch,time,4] y) <int64 one = {1}>
{ seen = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(x)  y = CumSum(seen, one) }"""


def scaled(case: Case) -> Verdict:
    return mapped(case, "EW1", lambda entry: ANYTHING)


def bounded_by_one(case: Case) -> Verdict:
    return mapped(case, "EW1", lambda entry: Interval(-1.0, 1.0))


def padded() -> tuple[Lowered, Outcome]:
    model = ir.from_onnx_text(TEXT)
    for node in model.graph:
        node.name = f"{node.outputs[0].name}_node"
    graphs.infer_shapes(model)
    origin = Lowered("toy", model, batch_axis="batch", padded_axes=(PaddedAxis("time", "time_length"),))
    return origin, PadAxes().apply(dataclasses.replace(origin, model=graphs.clone(model)))


@pytest.fixture(autouse=True)
def sizes_of_the_operator() -> None:
    def infer(context: ShapeInferenceContext, node: ir.Node) -> None:
        entries = node.inputs[0]
        assert entries is not None
        context.set_shape_and_dtype(node.outputs[0], entries.shape, entries.dtype)

    registry.register(*OPERATOR, since_version=1)(infer)


def test_without_a_rule_it_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="Scaler"):
        padded()


def require_checked(origin: Lowered, outcome: Outcome) -> None:
    certificate = json.loads(json.dumps(outcome.records[0]))
    before, after = (ir.serde.serialize_model(lowered.model) for lowered in (origin, outcome.lowered))
    check(before, after, certificate)


def test_a_rule_is_all_that_padding_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, OPERATOR, scaled)
    origin, outcome = padded()
    require_checked(origin, outcome)
    check_padded(origin, outcome, seed=0, rows=3, tolerance=0.0)


def test_a_wrong_rule_is_found_by_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, OPERATOR, bounded_by_one)
    with pytest.raises(Rejected, match="seen"):
        require_checked(*padded())
