"""assembly: the bundle as a whole, its report and its bytes."""

import json
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from compiler import passes
from compiler.base.records.drift_curves import curve_of
from compiler.build.lowering.pass_parity import PassParity
from compiler.build.verify.differences import Difference
from tests.kit.models.project import TIMES, Project, digest_of
from tests.kit.sabotage import sabotage


def test_one_graph_of_open_rows_has_its_states_apart_and_is_static_besides(shared: Project) -> None:
    bundle = shared.folder / "bundle"
    manifest = json.loads((bundle / "manifest.json").read_text())
    graph = manifest["graphs"]["net"]
    assert len({state["input"] for state in graph["states"]}) == 6
    assert {tuple(artifact["files"]) for artifact in graph["artifacts"]} == {("graphs/net.weights",)}
    assert (bundle / "graphs/net.weights").stat().st_size > 0
    assert [artifact["file"] for artifact in graph["artifacts"]] == ["graphs/net.batch.onnx"] * 2
    model = ir.load(bundle / "graphs/net.batch.onnx")
    values = [*model.graph.inputs, *(output for node in model.graph for output in node.outputs)]
    dims = {dim for value in values if value.shape is not None for dim in value.shape if not isinstance(dim, int)}
    assert {str(dim).split("*")[-1] for dim in dims} == {"batch"}, "rows, or rows times frames"


def test_report_names_every_stage_and_every_tensor(shared: Project) -> None:
    ended = shared.build()
    stages = [stage["stage"] for stage in ended.report["stages"]]
    assert stages[:2] == ["data", "capture"]
    assert stages[-2:] == ["bundle", "budget"]
    assert {row["subject"] for row in ended.report["gates"] if row["gate"] == "parity.max_abs"} >= {"logits"}
    assert ended.report["verdict"] == "all gates hold"
    assert ended.report["failure"] is None
    assert all(row["holds"] is True for row in ended.report["gates"])
    gates = {row["gate"] for row in ended.report["gates"]}
    assert gates >= {"parity.max_abs", "edges", "buckets", "invariance", "task.max_increase", "budget.size_mb"}
    (task,) = (row for row in ended.report["gates"] if row["gate"] == "task.identical")
    assert (task["graph"], task["measured"], task["limit"]) == ("net", 2, 2)
    assert set(ended.report["sizes"]) == set(digest_of(shared.folder / "bundle"))
    assert {row["sizes"] for row in ended.report["speed"]} == {"batch=1", "batch=2"}


@pytest.mark.slow
def test_build_without_cache_is_byte_identical(shared: Project, project: Project) -> None:
    ended = project.build(out="again", cached=False)
    assert ended.code == 0, ended.err
    assert ended.stages(cached=True) == []
    assert digest_of(project.folder / "again", TIMES) == digest_of(shared.folder / "bundle", TIMES)


GATE = "net: {max_abs: 1.0e-5, chained_steps: 8}"


@pytest.mark.slow
def test_drift_is_measured_and_kept_in_the_receipts(project: Project) -> None:
    project.replace("tiny.yaml", GATE, "net: {max_abs: 1.0e-5, chained_steps: 8, drift: {steps: 60}}")
    ended = project.build()
    assert ended.code == 0, ended.err
    assert "net:drift" in ended.stages(cached=False)
    receipts = json.loads((project.folder / "bundle/receipts.json").read_text())
    curves = [curve_of(each) for each in receipts["parity"]["net"]["drift"]]
    assert {curve.tensor for curve in curves if not curve.is_state} == {"logits"}
    assert any(curve.is_state for curve in curves)
    assert all(curve.steps == 60 and len(curve.errors) == 60 for curve in curves)
    assert "60 chained steps; " in ended.out


RISING = """import tiny_data


def verification():
    for seed in range(3):
        stream = tiny_data.one_stream(seed)
        yield [{"features": feed["features"] * (1 if call < 5 else 100)} for call, feed in enumerate(stream)]
"""


def scale_logits(model: ir.Model) -> None:
    """An error that follows the data's level, ten thousand times what any rounding makes."""
    exact = next(value for value in model.graph.outputs if value.name == "logits")
    factor = ir.tensor(np.array(1.001, np.float32), name="factor")
    value = ir.Value(name="factor", const_value=factor, type=ir.TensorType(factor.dtype), shape=ir.Shape(()))
    model.graph.register_initializer(value)
    scaled = ir.node("Mul", [exact, value])
    model.graph.append(scaled)
    scaled.outputs[0].type, scaled.outputs[0].shape = exact.type, exact.shape
    exact.name, scaled.outputs[0].name = "exact_logits", "logits"
    model.graph.outputs[list(model.graph.outputs).index(exact)] = scaled.outputs[0]


@pytest.mark.slow
def test_drift_that_grows_fails_the_build(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is planted and rises with the data's level, so that no machine's rounding decides."""
    project.write("rising.py", RISING)
    project.replace("tiny.yaml", "tiny_data:verification", "rising:verification")
    project.replace("tiny.yaml", GATE, "net: {max_abs: 0.01, chained_steps: 8, drift: {steps: 8, max_growth: 3}}")
    sabotage(monkeypatch, "pack_states", scale_logits)
    ended = project.build("--report-html", "page.html")
    assert ended.code == 4, ended.err
    assert "stage drift, graph net, tensor logits" in ended.message
    assert "within 3 times its first half over 8 chained steps, got " in ended.message
    assert not (project.folder / "bundle").exists()
    check_report_of_drift(ended.report, (project.folder / "page.html").read_text())


def check_report_of_drift(report: dict[str, Any], page: str) -> None:
    """What came before holds, with its figures; what failed has bound and value; the rest was not reached."""
    assert (report["schema_version"], report["verdict"]) == (2, "a gate failed")
    assert report["failure"]["place"] == {"stage": "drift", "graph": "net", "tensor": "logits"}
    assert report["failure"]["exit_code"] == 4
    assert report["stages"][-1]["stage"] == "drift"
    rows = {(row["gate"], row["subject"]): row for row in report["gates"]}
    parity, drift = rows["parity.max_abs", "logits"], rows["parity.drift", "logits"]
    assert parity["holds"] is True and 0 < parity["measured"] <= parity["limit"]
    assert drift["holds"] is False and drift["measured"] > drift["limit"] == 3
    reached = {gate for (gate, _), row in rows.items() if row["holds"] is not None}
    assert reached == {"parity.max_abs", "edges", "buckets", "parity.drift"}
    left = {gate for (gate, _), row in rows.items() if row["holds"] is None}
    assert left == {"invariance", "replay", "task.max_increase", "task.identical", "budget.size_mb", "budget.p95_ms"}
    for words in ("a gate failed", "parity.drift", "FAILS", "not reached", "its first half over 8 chained steps"):
        assert words in page


@pytest.mark.slow
def test_a_gate_that_only_what_ships_fails_names_the_node_of_the_pass_that_rounds(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(model: ir.Model) -> None:
        node = [node for node in model.graph if node.op_type == "Softmax"][-1]
        node.attributes["axis"] = ir.AttrInt64("axis", 2)

    project.replace("tiny.yaml", GATE, "net: {max_abs: 1.0e-5, chained_steps: 8, lossy: {max_abs: 1.0e-3}}")
    sabotage(monkeypatch, "pack_states", spoil)
    monkeypatch.setattr(passes.pass_kinds()["pack_states"], "lossy", True)
    monkeypatch.setattr(PassParity, "compare", lambda *_, **__: (Difference("logits", 1, 0.0, 1.0, 0, 0.0, 0.0), 1.0))
    ended = project.build()
    assert ended.code == 4, ended.err
    for word in ("stage verify batch=1, graph net, node ", "op Softmax", "source tiny_asr.py:", "1 node is to blame"):
        assert word in ended.message, ended.message
    assert (project.folder / "bundle.failure" / "reproduce.py").is_file()
