"""The list of gates: what a recipe asks for, and that a gate is one file and one line in it."""

import dataclasses
import io
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from compiler.base.records.findings import Finding
from compiler.build.report.progress import Progress
from compiler.build.verify import gates
from compiler.build.verify.gate import Checked, Gate, Phase, Shipped
from compiler.build.verify.gates import GATES, promises, run_gates
from compiler.errors import GateFailed
from compiler.graph.runners.stream import Advance
from compiler.recipe.load import load_recipe
from tests.kit import short_names
from tests.kit.models.project import Project
from tests.kit.shipped import emitted, feeds, relu, shipped, stream_artefacts


def test_no_two_gates_have_one_name_and_each_runs_some_time() -> None:
    assert len({gate.name for gate in GATES}) == len(GATES)
    assert all(gate.phases for gate in GATES)
    assert [gate.name for gate in GATES if "engines" in gate.phases] == ["pipeline", "closed loop", "task"]


def test_what_a_recipe_asks_for(shared: Project) -> None:
    promised = {(each.gate, each.graph) for each in promises(load_recipe(str(shared.folder / "tiny.yaml")).recipe)}
    in_force = {("edges", "net"), ("buckets", "net"), ("invariance", "net"), ("replay", "")}
    asked = {("parity.max_abs", "net"), ("task.max_increase", "net"), ("task.identical", "net")}
    assert promised == in_force | asked | {("budget.size_mb", ""), ("budget.p95_ms", "net")}


def rows_of(report: dict[str, Any], gate: str) -> list[dict[str, Any]]:
    return [row for row in report["gates"] if row["gate"] == gate]


@pytest.mark.parametrize("longest", [3, 1000])
def test_a_gate_that_is_added_shows_everywhere(longest: int, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in the list is all that a build, its lines, its report and its page need to know of a gate."""
    monkeypatch.setattr(short_names, "LONGEST", longest)
    monkeypatch.setattr(gates, "GATES", (*GATES, short_names.SHORT_NAMES))
    ended = project.build("--set", "front_end.hop=9", "--report-html", "page.html", recipe="stream.yaml")
    holds = longest == 1000
    assert ended.code == (0 if holds else 4), ended.err
    (row,) = rows_of(ended.report, "short_names")
    assert (row["graph"], row["holds"], row["limit"], row["detail"]) == ("net", holds, longest, "characters")
    assert row["measured"] > 3
    page = (project.folder / "page.html").read_text()
    said = " ".join(" ".join(ET.fromstring(page.split("\n", 1)[1]).itertext()).split())
    assert f"short_names net {row['subject']} {row['measured']} {longest}" in said
    (line,) = (line for line in ended.out.splitlines() if line.startswith("net: short_names"))
    if holds:
        assert line.endswith(f"has {row['measured']} characters")
        assert any(line.split()[:3] == ["short_names", "net", row["subject"]] for line in ended.out.splitlines())
        return
    assert line.endswith("failed")
    assert f"expected short_names of {row['subject']} of at most 3, got {row['measured']}" in ended.message
    assert "rename it in the model" in ended.message
    assert not (project.folder / "bundle").exists()


def test_a_promise_that_is_not_looked_at_is_listed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the list is the order of the gates; what comes behind a failure is not reached."""
    first = dataclasses.replace(short_names.SHORT_NAMES, name="first names")
    monkeypatch.setattr(short_names, "LONGEST", 1)
    monkeypatch.setattr(gates, "GATES", (first, *GATES, short_names.SHORT_NAMES))
    ended = project.build("--set", "front_end.hop=9", recipe="stream.yaml")
    assert ended.code == 4
    held = {row["gate"]: row["holds"] for row in ended.report["gates"]}
    assert held["short_names"] is False, "findings have the name that the check gives them"
    assert held["edges"] is held["buckets"] is held["replay"] is None


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
    progress, findings = Progress(Console(file=io.StringIO())), list[Finding]()
    receipts = run_gates("graphs", bundle, progress, findings, {})
    lines = [(stage.graph, stage.stage, stage.detail) for stage in progress.stages]
    assert lines == [
        (graph, *line) for graph in ("net", "head") for line in (("verify", "a seen; b seen"), ("c", "c seen"))
    ]
    assert [(each.gate, each.graph) for each in findings] == [
        (gate, graph) for graph in ("net", "head") for gate in "abc"
    ]
    later = run_gates("bundle", bundle, progress, findings, receipts)
    assert receipts == {graph: dict.fromkeys("abc", graph) for graph in ("net", "head")}  # the argument is not changed
    receipts = later
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
    shipped, receipts = dataclasses.replace(bundle, originals=called, graphs=bundle.graphs), dict[str, dict[str, Any]]()
    phases: tuple[Phase, ...] = ("graphs", "bundle")
    for phase in phases:
        receipts = run_gates(phase, shipped, Progress(Console(file=io.StringIO())), [], receipts)
    assert receipts == {"task": {"task": "task"}, "net": {"task": "net"}, "": {"task": "whole"}}
