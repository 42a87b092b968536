"""Gates run phase by phase and graph by graph; those that share a line, one after the other on it."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from compiler.errors import GateFailed
from compiler.records.findings import Finding
from compiler.report.progress import Progress
from compiler.runners.stream import Advance
from compiler.verify import gates
from compiler.verify.gate import Checked, Gate, Phase, Shipped
from compiler.verify.gates.run import run_gates
from tests.kit.shipped import emitted, feeds, relu, shipped, stream_artefacts


def noted(name: str, *, holds: bool = True, stage: str = "", phase: Phase = "graphs", each_graph: bool = True) -> Gate:
    def check(shipped: Shipped, advance: Advance) -> Checked:
        return Checked([Finding(name, shipped.name, holds=holds)], f"{name} seen", {name: shipped.name or "whole"})

    return Gate(name, check, phases=(phase,), each_graph=each_graph, stage=stage)


@pytest.fixture
def bundle(tmp_path: Path) -> Shipped:
    one = emitted(tmp_path, relu(1), {"batch": 1})
    net = shipped(tmp_path, stream_artefacts(tmp_path, [one], [feeds(3)]), [one])
    both = {"net": net.original, "head": net.original}
    return dataclasses.replace(net, originals=both, graphs=dict.fromkeys(both, net.graph), name="")


def test_lines_findings_and_receipts(bundle: Shipped, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (noted("a", stage="verify"), noted("b", stage="verify"), noted("c"), noted("d", phase="bundle"))
    monkeypatch.setattr(gates, "GATES", (*listed, noted("e", phase="bundle", each_graph=False)))
    progress, findings, receipts = Progress(Console(file=io.StringIO())), list[Finding](), dict[str, Any]()
    run_gates("graphs", bundle, progress, findings, receipts)
    lines = [(stage.graph, stage.stage, stage.detail) for stage in progress.stages]
    assert lines == [
        (graph, *line) for graph in ("net", "head") for line in (("verify", "a seen; b seen"), ("c", "c seen"))
    ]
    assert [(each.gate, each.graph) for each in findings] == [
        (gate, graph) for graph in ("net", "head") for gate in "abc"
    ]
    assert receipts == {graph: dict.fromkeys("abc", graph) for graph in ("net", "head")}
    run_gates("bundle", bundle, progress, findings, receipts)
    assert [receipts[name].get("d") for name in ("net", "head")] == ["net", "head"]
    assert receipts[""] == {"e": "whole"}
    assert progress.stages[-1].graph == ""


def test_what_held_before_a_failure_is_taken_down(bundle: Shipped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "GATES", (noted("a"), noted("b", holds=False), noted("c")))
    progress, findings = Progress(Console(file=io.StringIO())), list[Finding]()
    with pytest.raises(GateFailed, match="stage b, graph net: expected b to hold"):
        run_gates("graphs", bundle, progress, findings, {})
    assert [each.gate for each in findings] == ["a"]
    assert [(stage.stage, stage.detail) for stage in progress.stages] == [("a", "a seen"), ("b", "failed")]


def test_a_graph_may_be_called_like_a_gate(bundle: Shipped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "GATES", (noted("task"), noted("task", phase="bundle", each_graph=False)))
    called = dict.fromkeys(("task", "net"), bundle.originals["net"])
    shipped, receipts = dataclasses.replace(bundle, originals=called, graphs=bundle.graphs), dict[str, object]()
    phases: tuple[Phase, ...] = ("graphs", "bundle")
    for phase in phases:
        run_gates(phase, shipped, Progress(Console(file=io.StringIO())), [], receipts)
    assert receipts == {"task": {"task": "task"}, "net": {"task": "net"}, "": {"task": "whole"}}
