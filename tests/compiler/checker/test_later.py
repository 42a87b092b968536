"""A graph that is said to answer later, and does not, is rejected."""

from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from compiler.checker.graph import Rejected
from compiler.checker.later import check_later
from compiler.graph import model as graphs
from compiler.proof.derivation.derive import derive
from tests.kit.graphs import parse

Told = dict[str, Any]


def later() -> tuple[onnx.ModelProto, onnx.ModelProto, Told]:
    model = parse("""(float[batch, 1, time] x) => (float[batch, 1, n] y)
        <float[1, 1, 4] wide = {1, 2, 3, 4}, float[1, 1, 3] w = {3, 1, -2}, float[1] bias = {1}>
        { a = ConvTranspose<strides = [2], pads = [1, 1]>(x, wide, bias) y = Conv<pads = [1, 1]>(a, w, bias) }""")
    graphs.infer_shapes(model)
    made = derive(model, "time", "past", 16, later=True)
    assert made.early is not None
    return ir.serde.serialize_model(made.early), ir.serde.serialize_model(model), made.certificate


def test_what_holds_is_replayed() -> None:
    assert check_later(*later()) == 12


@pytest.mark.parametrize("told", [{"delay": 2}, {"delay": 0}, {"marks": "x"}], ids=str)
def test_what_is_told_otherwise_is_rejected(told: Told) -> None:
    early, late, certificate = later()
    with pytest.raises(Rejected):
        check_later(early, late, {**certificate, **told})


def test_another_graph_is_rejected() -> None:
    early, late, certificate = later()
    (weights,) = [each for each in early.graph.initializer if each.name == "w"]
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * 2, "w"))
    with pytest.raises(Rejected, match="is not what it was, 1 frames later"):
        check_later(early, late, certificate)


@pytest.mark.parametrize("position", [0, -1])
def test_a_graph_that_reads_what_is_fed_behind_the_end_is_rejected(position: int) -> None:
    early, late, certificate = later()
    wheres = [node for node in late.graph.node if node.op_type == "Where"]
    wheres[position].input[2] = wheres[position].input[1]  # nothing is masked there
    with pytest.raises(Rejected):
        check_later(early, late, certificate)
