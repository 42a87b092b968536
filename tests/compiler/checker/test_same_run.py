"""Runs are the same only where everything that they are made from is."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from compiler.checker.check import check
from compiler.checker.graph import Graph
from compiler.checker.replay import Replay
from compiler.checker.same_run import digest_of_run
from compiler.graph import model as graphs
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import copy_of, parse, streaming


def model(weight: float = 1.0, axis: int = 1, width: int | str = "batch", *, more: str = "") -> onnx.ModelProto:
    text = f"""(float[{width},4] x, float[1,4] w{more}) => (float[{width},4] a)
        {{ s = Add(x, w)  a = Softmax<axis = {axis}>(s) }}"""
    return ir.serde.serialize_model(parse(text, {"w": np.full((1, 4), weight, np.float32)}))


def digest(made: onnx.ModelProto, told: tuple[Any, ...] = ("told",), use: str = "padded") -> bytes:
    graph = Graph(made)
    return digest_of_run(told, {use: (graph, graph.part(["a"], {}))})


def test_a_run_is_known_by_the_step_and_what_it_reads() -> None:
    assert digest(model()) == digest(model()) == digest(model(more=", float[7] unread"))
    others = [
        digest(model(weight=1.5)), digest(model(axis=0)), digest(model(width="rows")), digest(model(width=3)),
        digest(model(), told=("other",)), digest(model(), told=("told", None)), digest(model(), use="alone"),
    ]  # fmt: skip
    assert len({digest(model()), *others}) == 1 + len(others)


Proof = tuple[onnx.ModelProto, onnx.ModelProto, dict[str, Any]]


def proof() -> Proof:
    lowered = copy_of(streaming())
    graphs.infer_shapes(lowered.model)
    before = ir.serde.serialize_model(graphs.clone(lowered.model))
    outcome = PadAxes().apply(lowered)
    return before, ir.serde.serialize_model(outcome.lowered.model), copy.deepcopy(outcome.records[0])


def weights(before: onnx.ModelProto, after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    """Those of both graphs, which are the same."""
    for tensor in (*before.graph.initializer, *after.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f":
            tensor.CopyFrom(numpy_helper.from_array(np.nextafter(array, np.float32(9), dtype=np.float32), tensor.name))


def least(before: onnx.ModelProto, after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    """One entry more."""
    certificate["minimum"] = {axis: least + 1 for axis, least in certificate["minimum"].items()}


def claims(before: onnx.ModelProto, after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    """Of every result, about nothing that is not so."""
    for record in certificate["records"]:
        for fact in record["out"]:
            fact["remark"] = "another"


def one_side(before: onnx.ModelProto, after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    """What runs alone, and differs from what is padded in an attribute that says nothing."""
    for node in before.graph.node:
        if node.op_type == "MatMul":
            node.doc_string = "of the graph before"


@pytest.mark.parametrize("change", [weights, least, claims, one_side], ids=lambda change: change.__name__)
def test_what_changes_a_run_has_it_run(
    change: Callable[[onnx.ModelProto, onnx.ModelProto, dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, certificate = proof()
    survived, compared = set[bytes](), list[str]()
    check(before, after, certificate, survived=survived)
    monkeypatch.setattr(Replay, "_compare", lambda self, record, *_, **__: compared.append(record["op"]))
    check(before, after, certificate, survived=survived)
    assert compared == []
    change(before, after, certificate)
    check(before, after, certificate, survived=survived)
    assert "MatMul" in compared


def test_draws_that_are_more_are_drawn() -> None:
    before, after, certificate = proof()
    survived = set[bytes]()
    check(before, after, certificate, survived=survived)
    count = len(survived)
    check(before, after, certificate, survived=survived, seeds=3)
    assert len(survived) == 2 * count
