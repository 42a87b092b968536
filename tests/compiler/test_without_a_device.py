"""Whole builds for a target whose compiler is on another machine: what is built, said and refused here."""

import dataclasses
import json
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.graph.operators.traits import PRODUCTS
from compiler.targets.base import EngineLayer, TrialEngine
from compiler.targets.tensorrt import trial
from tests.kit.models.project import TIMES, Project, digest_of
from tests.kit.placeholder import shared_library
from tests.kit.rtx_library import BEHAVIOUR, PACKAGE, write_rtx
from tests.kit.vendor import DRIVER_CODE, write_packages
from tests.runtime_lite.engines import use_doubles

NO_BUILDER = "no package tensorrt_rtx; pip install tensorrt-rtx-cu13==1.7.1.116"
REASON = "CUDA: expected a CUDA device, got a CUDA driver that does not start (cuInit says 35)"
X86_LINUX = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="the driver's double is x86-64 machine code"
)
pytestmark = X86_LINUX


@pytest.fixture
def project(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project with the other target, on a machine whose driver does not start."""
    project.replace("tiny.yaml", "  - kind: onnx_static", "  - kind: tensorrt")
    folder = tmp_path / "no driver"
    folder.mkdir()
    broken = {**DRIVER_CODE, "cuInit": b"\xb8\x23\x00\x00\x00\xc3"}
    (folder / "libcuda.so.1").write_bytes(shared_library("libcuda.so.1", broken))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setitem(sys.modules, trial.PACKAGE, None)  # as if it were not installed
    return project


def test_the_bundle_is_complete_but_for_the_engine_and_says_so_everywhere(project: Project, shared: Project) -> None:
    ended = project.build(out="trt")
    assert ended.code == 0, ended.err
    assert ended.report["engines"] == [
        {"graph": "net", "status": "not built", "reason": REASON, "reached": "linted", "by": NO_BUILDER}
    ]
    linted = f"linted, not built ({NO_BUILDER})"
    assert ended.report["verdict"] == f"all gates hold for the graphs; engines {linted}"
    assert ended.report["speed"] == []
    stages = {stage["stage"]: stage["detail"] for stage in ended.report["stages"]}
    assert stages["speed"] == "not measured: no engine runs here; not checked: gates.budget.p95_ms"
    assert stages["replay"].endswith("comparisons through runtime_lite on the ONNX graphs, no engine is built")
    lines = ended.out.splitlines()
    assert lines[-2:-1] == ["bundle: trt"]
    assert lines[-1].startswith(f"ENGINE NOT BUILT (net): {REASON}; {linted}; all checks ran on the ONNX graphs")
    assert lines[-1].endswith("python build.py finish trt")
    assert any(re.search("NOT BUILT +linted, not", line) for line in lines)
    manifest = json.loads((project.folder / "trt/manifest.json").read_text())
    engine = manifest["graphs"]["net"]["engine"]
    assert (engine["status"], engine["reason"]) == ("not built", REASON)
    static = json.loads((shared.folder / "bundle/manifest.json").read_text())
    assert manifest["files"].keys() & static["files"].keys() >= {"graphs/net.weights", "certificates/net.json"}
    sizes = {artifact["file"]: artifact["sizes"]["batch"] for artifact in manifest["graphs"]["net"]["artifacts"]}
    assert sorted(sizes.values()) == [1, 2], "engines are built from a graph per number of rows"
    with np.load(project.folder / "trt/tensorrt/net.feeds.npz", allow_pickle=False) as arrays:
        assert {name.split("/")[0] for name in arrays.files} == {"tolerance", "batch=1", "batch=2"}


def test_the_bundle_is_inspected_but_not_run_here(project: Project) -> None:
    assert project.build(out="trt").code == 0
    inspected = project.run("inspect", "trt")
    assert inspected.code == 0
    assert f"engine: NOT BUILT: {REASON}" in inspected.out
    before = digest_of(project.folder)
    verified = project.run("verify", "trt")
    assert (verified.code, verified.message) == (
        5,
        f"error: trt: graph 'net': expected an engine, got none, {REASON}; run `python build.py finish trt` on the "
        "machine with the device",
    )
    finished = project.run("finish", "trt")
    assert (finished.code, finished.message) == (
        5,
        f"error: trt: {REASON}; run it on the machine with the device; `python build.py doctor` lists what is missing "
        "here",
    )
    assert digest_of(project.folder) == before


def test_strict_fails_before_any_work_and_leaves_nothing(project: Project) -> None:
    before = digest_of(project.folder)
    ended = project.build("--strict", out="trt")
    assert (ended.code, ended.out) == (5, "")
    assert ended.message == (
        f"error: target tensorrt: {REASON}; build without --strict and run `python build.py finish` on the machine "
        "with the device"
    )
    assert digest_of(project.folder) == before


def test_a_build_from_the_cache_gives_the_same_bundle_and_says_the_same(project: Project) -> None:
    first, second = project.build(out="one"), project.build(out="two")
    assert (first.code, second.code) == (0, 0)
    assert second.stages(cached=True)[-1] == ":bundle"
    assert digest_of(project.folder / "one", TIMES) == digest_of(project.folder / "two", TIMES)
    assert second.report["engines"] == first.report["engines"]
    assert "ENGINE NOT BUILT" in second.out


def test_a_wrong_option_is_answered_with_its_line(project: Project) -> None:
    project.replace("tiny.yaml", "  - kind: tensorrt", "  - {kind: tensorrt, workspace_mb: lots}")
    ended = project.build(out="trt")
    assert ended.code == 2
    assert "tensorrt: workspace_mb: expected int, got 'lots'; change the value" in ended.message
    assert "tiny.yaml:" in ended.message
    project.replace("tiny.yaml", "workspace_mb: lots", "opset: 5")
    assert "tensorrt: opset: expected from 9 to 25, got 5" in project.build(out="trt").message


def test_a_graph_that_the_target_refuses_leaves_nothing(project: Project) -> None:
    project.replace("tiny.yaml", "  - kind: tensorrt", "  - {kind: tensorrt, opset: 9}")
    before = digest_of(project.folder)
    ended = project.build(out="trt")
    assert ended.code == 3
    assert "stage tensorrt, graph net: expected a graph that TensorRT builds as it is written, got 1 viol" in ended.err
    assert "[opset] expected opset 9 to 9 of the standard operators" in ended.err
    assert digest_of(project.folder) == before


@pytest.mark.slow
def test_where_the_device_is_the_engines_are_built_verified_and_timed(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_packages(tmp_path / "machine")
    (folder / "libcuda.so.1").write_bytes(shared_library("libcuda.so.1", DRIVER_CODE))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    use_doubles(monkeypatch)
    ended = project.build("--strict", out="direct")
    assert ended.code == 0, ended.err
    assert ended.report["engines"] == [{"graph": "net", "status": "built", "reason": "", "reached": "run", "by": ""}]
    assert ended.report["verdict"] == "all gates hold"
    assert {row["sizes"] for row in ended.report["speed"]} == {"batch=1", "batch=2"}
    assert "ENGINE NOT BUILT" not in ended.out
    engines = [name for name in digest_of(project.folder / "direct") if name.startswith("engines/")]
    assert engines == ["engines/net.batch1.plan", "engines/net.batch2.plan"]
    assert project.run("finish", "direct").out == "direct: nothing to finish; its engines are built\n"
    assert project.run("verify", "direct").code == 0


def trial_in(kind: str) -> Callable[..., tuple[TrialEngine, bytes]]:
    """A builder whose engines compute every product in one type."""

    def built(
        bundle: Path, plan: Mapping[str, Any], engine: Mapping[str, Any], capabilities: Sequence[str], why: str
    ) -> tuple[TrialEngine, bytes]:
        nodes = onnx.load(bundle / engine["graph"], load_external_data=False).graph.node
        layers = tuple(
            EngineLayer(
                f"gemm of {node.name}", frozenset({node.name}), True, frozenset({kind}), (kind,), frozenset(), False
            )
            for node in nodes
            if node.op_type in PRODUCTS
        )
        return TrialEngine("TensorRT-RTX 1.7.1.116", f"{capabilities[0]}{why}", "0" * 64, 1000, layers), b""

    return built


@pytest.mark.slow
def test_where_only_a_builder_is_the_graphs_are_built_and_not_run(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, trial.PACKAGE)
    monkeypatch.syspath_prepend(str(write_rtx(tmp_path / "site")))
    trial.builder_version.cache_clear()
    monkeypatch.setattr(trial, "built_trial", trial_in("float16"))
    failed = project.build(out="trt")
    assert failed.code == 4, failed.err
    assert "stage engines batch=1, graph net, node " in failed.message and "that do not: " in failed.message
    assert any(row["gate"] == "engine layers" and row["holds"] is False for row in failed.report["gates"])
    assert not (project.folder / "trt").exists()
    monkeypatch.setattr(trial, "built_trial", trial_in("float32"))
    ended = project.build("--report-html", "page.html", out="trt")
    trial.builder_version.cache_clear()
    check_words_of_a_trial(project, ended.code, ended.out, ended.report)


def check_words_of_a_trial(project: Project, code: int, out: str, report: dict[str, Any]) -> None:
    """Built is told apart from linted and from run, in the terminal, in JSON and on the page."""
    assert code == 0, out
    (engine,) = report["engines"]
    words = engine["by"]
    assert words.startswith(
        "built by TensorRT-RTX 1.7.1.116 for 8.6 in the place of 7.5, for which TensorRT-RTX, unlike "
    )
    assert words.endswith(", not run")
    assert (engine["status"], engine["reason"], engine["reached"]) == ("not built", REASON, "built")
    assert report["verdict"] == f"all gates hold for the graphs; engines {words}"
    assert f"ENGINE NOT BUILT (net): {REASON}; {words}; all checks ran" in out
    rows = {row["subject"]: row for row in report["gates"] if row["gate"] == "engine layers"}
    assert set(rows) == {"batch=1", "batch=1, float32", "batch=2", "batch=2, float32"}
    assert all(row["holds"] is True and row["measured"] > 0 for row in rows.values())
    assert words in (project.folder / "page.html").read_text()
    receipts = json.loads((project.folder / "trt/receipts.json").read_text())
    assert receipts["parity"]["net"]["engines"]["batch=2"]["builder"] == "TensorRT-RTX 1.7.1.116"
    manifest = json.loads((project.folder / "trt/manifest.json").read_text())
    assert manifest["graphs"]["net"]["engine"]["status"] == "not built"


@dataclasses.dataclass
class Counted:
    """A builder of TensorRT-RTX whose engines compute every product in one type, and say which build made them.

    Without a type it describes no layers.
    """

    kind: str = "float32"
    builds: list[str] = dataclasses.field(default_factory=list)

    def __call__(
        self, bundle: Path, plan: Any, engine: Any, capabilities: Sequence[str], why: str = ""
    ) -> tuple[TrialEngine, bytes]:
        self.builds.append(engine["engine"])
        described, _ = trial_in(self.kind)(bundle, plan, engine, capabilities, why)
        layers = described.layers if self.kind else None
        return dataclasses.replace(described, layers=layers), f"build {len(self.builds)}".encode()


ENGINES = ["engines/net.batch1.plan", "engines/net.batch2.plan"]


@pytest.mark.slow
def test_an_engine_that_ships_is_built_once_and_held_to_its_graph_whoever_builds_it(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build makes engines where the builder is; where it is not, `finish` makes them later."""
    project.replace("tiny.yaml", "  - kind: tensorrt", "  - kind: tensorrt_rtx")
    assert project.build(out="later").code == 0
    monkeypatch.delitem(sys.modules, trial.PACKAGE)
    monkeypatch.syspath_prepend(str(write_rtx(tmp_path / "site")))
    trial.builder_version.cache_clear()
    monkeypatch.setattr(trial, "built_trial", builder := Counted())
    ended = project.build(out="now")
    assert ended.code == 0, ended.err
    assert builder.builds == ENGINES
    shipped = [(project.folder / "now" / name).read_text() for name in ENGINES]
    assert shipped == ["build 1", "build 2"], "what the gate has looked at is what ships"
    assert ended.report["engines"][0]["status"] == "built"
    assert any(row["gate"] == "engine layers" and row["holds"] is True for row in ended.report["gates"])
    monkeypatch.setattr(trial, "built_trial", Counted("float16"))
    before = digest_of(project.folder / "later")
    failed = project.run("finish", "later")
    assert failed.code == 4, failed.err
    assert "stage engines batch=1, graph net, node " in failed.message and "that do not: " in failed.message
    assert digest_of(project.folder / "later") == before
    monkeypatch.setattr(trial, "built_trial", builder := Counted(""))
    finished = project.run("finish", "later")
    assert finished.code == 0, finished.err
    assert builder.builds == ENGINES
    assert finished.out.startswith(
        "net batch=1: TensorRT-RTX 1.7.1.116 describes its layers in a form that is not know"
    )
    trial.builder_version.cache_clear()


@pytest.mark.slow
def test_a_builder_that_cannot_be_relied_on_ends_a_build_by_name_and_leaves_nothing(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It crashes, describes its layers in another form under --strict, and is of another version."""
    project.replace("tiny.yaml", "  - kind: tensorrt", "  - kind: tensorrt_rtx")
    monkeypatch.delitem(sys.modules, trial.PACKAGE)
    monkeypatch.syspath_prepend(str(write_rtx(tmp_path / "site")))
    trial.builder_version.cache_clear()
    monkeypatch.setenv(BEHAVIOUR, "crash")
    crashed = project.build(out="pc")
    assert crashed.code == 3
    assert (
        "graphs/net.batch1.onnx: expected an engine of TensorRT-RTX 1.7.1.116 for compute capability 8.6, 8.9, 12.0: "
        "expected build_trial.py to end by itself, got a process ended by SIGSEGV; change the graph\n"
    ) in crashed.message + "\n", "this target has no option that leaves the builder out"
    monkeypatch.setattr(trial, "built_trial", Counted(""))
    unread = project.build("--strict", out="pc")
    assert unread.code == 4
    assert (
        "batch=1: expected layers that can be read, got TensorRT-RTX 1.7.1.116 describes its layers" in unread.message
    )
    assert not (project.folder / "pc").exists()
    (tmp_path / "site/tensorrt_rtx/__init__.py").write_text(PACKAGE.replace("{version}", "1.8.0.2"))
    trial.builder_version.cache_clear()
    another = project.build("--strict", out="pc")
    trial.builder_version.cache_clear()
    assert another.code == 5
    assert "target tensorrt_rtx: expected version 1.7.1.116, got 1.8.0.2; build without --strict" in another.message
