"""The contract of a target: a vendor with its own interpreter and simulator is this folder and its line in the list."""

import dataclasses
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.base.records.build_report import SIMULATED
from compiler.base.records.findings import Finding
from compiler.build.bundle.replay_proofs import verify_proofs
from compiler.build.verify import gates
from compiler.build.verify.gate import Checked, Gate, Phase, Shipped
from compiler.graph.runners.stream import Advance
from compiler.targets import TARGETS
from runtime_lite import EngineAbsent, Runtime, read_bundle
from tests.example_vendor import target
from tests.example_vendor.target import HOME, SCRIPT, Abacus
from tests.kit.graphs import parse
from tests.kit.models.project import Ended, Project, digest_of

HERE = Path(__file__).parent
ABSENT = "expected the interpreter no abacus, got No such file or directory"

PYTHON = """#!/bin/sh
request=$(mktemp) && cat > "$request"
grep -o '"task": "[a-z]*"' "$request" >> "{log}"
shift 2
exec "{python}" -I -S "$@" < "$request"
"""
"""An interpreter that finds no package, ours included, and notes what it is asked for."""


@dataclasses.dataclass(frozen=True)
class Made:
    """A project that was built where the vendor is, and how often its script was asked for what."""

    project: Project
    ended: Ended
    asked: Counter[str]


def listed(patch: pytest.MonkeyPatch) -> None:
    """The line in the list."""
    patch.setitem(TARGETS, "abacus", Abacus)


def environment(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The vendor's environment; where its interpreter notes what it does."""
    folder.mkdir()
    python, log = folder / "python", folder / "asked"
    python.write_text(PYTHON.format(log=log, python=sys.executable))
    python.chmod(0o755)
    patch.setenv(HOME, str(python))
    return log


def model(last: str = "y = Relu(s)", width: int = 3) -> ir.Model:
    """Two layers, one of them a Gemm; `last` makes the output of the second, `s`."""
    shapes = {"w": (4, 3), "b": (3,), "v": (3, width), "c": (width,)}
    rng = np.random.default_rng(2)
    text = f"""(float[batch,4] x, float[4,3] w, float[3] b, float[3,{width}] v, float[{width}] c)
        => (float[batch,{width}] y) {{ g = Gemm(x, w, b)  h = Relu(g)  m = MatMul(h, v)  s = Add(m, c)  {last} }}"""
    return parse(text, {name: rng.uniform(-0.5, 1.0, shape).astype(np.float32) for name, shape in shapes.items()})


def write_project(folder: Path) -> Project:
    folder.mkdir()
    for name in ("counting.yaml", "counted.py"):
        shutil.copyfile(HERE / name, folder / name)
    ir.save(model(), folder / "net.onnx")
    return Project(folder, folder.with_name("cache"))


def build(project: Project, *options: str, out: str = "bundle") -> Ended:
    return project.build(*options, out=out, recipe="counting.yaml")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("abacus")
    with pytest.MonkeyPatch.context() as patch:
        listed(patch)
        log = environment(patch, folder / "vendor")
        project = write_project(folder / "counting")
        ended = build(project, "--strict")
        yield Made(project, ended, Counter(re.findall(r'"([a-z]+)"$', log.read_text(), re.MULTILINE)))


@pytest.fixture
def project(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy without the vendor."""
    listed(monkeypatch)
    monkeypatch.delenv(HOME, raising=False)
    return made.project.copy_to(tmp_path / "counting")


def test_a_recipe_is_emitted_compiled_and_verified_through_the_simulator(made: Made) -> None:
    ended, bundle = made.ended, made.project.folder / "bundle"
    assert ended.code == 0, ended.err
    assert ended.report["engines"] == [
        {"graph": "net", "status": "built", "reason": "", "reached": "simulated", "by": SIMULATED}
    ]
    assert ended.report["verdict"] == "all gates hold; artefact executed in the vendor's simulator"
    assert any(row["figures"].get("reference_max", 0.0) > 0.5 for row in ended.report["gates"])
    assert min(made.asked["compile"], made.asked["simulate"], made.asked["version"]) > 0, made.asked
    graph = json.loads((bundle / "manifest.json").read_text())["graphs"]["net"]
    assert graph["target"] == "abacus"
    assert graph["engine"]["built_with"] == {"abacus": "2.1", "frame": "17 rods"}
    for file, engine in graph["engine"]["files"].items():
        assert (bundle / engine).read_bytes().startswith(b"ABACUS ")
        assert [node.op_type for node in onnx.load(bundle / file).graph.node] == [
            "MatMul", "Add", "Relu", "MatMul", "Add", "Relu",
        ]  # fmt: skip


def test_a_time_of_the_simulator_is_no_time(made: Made) -> None:
    stages = {stage["stage"]: stage["detail"] for stage in made.ended.report["stages"]}
    assert stages["engine"] == "engines of 1 graphs, verified"
    assert stages["speed"] == (
        "not measured: what runs here does not take the time of the device; not checked: gates.budget.p95_ms"
    )
    assert made.ended.report["speed"] == []
    assert json.loads((made.project.folder / "bundle/costs.json").read_text()) == {}


def test_the_passes_of_the_target_run_again_when_its_proofs_are_replayed(made: Made) -> None:
    with read_bundle(made.project.folder / "bundle") as bundle:
        (said,) = verify_proofs(bundle)
    assert "2 graph files follow from it byte for byte" in said


def test_the_runtime_runs_no_engine_that_it_does_not_know(made: Made) -> None:
    with Runtime() as runtime, pytest.raises(EngineAbsent, match=r"got those of 'abacus'; run it with its vendor's"):
        runtime.load(made.project.folder / "bundle")


def test_a_bundle_of_simulated_engines_is_verified_by_the_simulator(
    made: Made, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = made.project.folder / "bundle"
    absent = project.run("verify", str(bundle))
    assert (absent.code, ABSENT in absent.message) == (5, True)
    environment(monkeypatch, tmp_path / "vendor")
    verified = project.run("verify", str(bundle))
    assert verified.code == 0, verified.err
    assert re.search(r"^ *net +batch=\d+ +y +\d+ .* ok *$", verified.out, re.MULTILINE)
    sabotage(monkeypatch, tmp_path, "value + b[", "value - b[")
    assert project.run("verify", str(bundle)).code == 4


def test_a_simulator_of_another_version_is_asked_again(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = environment(monkeypatch, tmp_path / "vendor")
    again = build(project, out="again")
    assert again.code == 0 and ":bundle" in again.stages(cached=True)
    sabotage(monkeypatch, tmp_path, 'VERSION = "2.1"', 'VERSION = "2.2"')
    before = log.read_text().count("simulate")
    upgraded = build(project, out="upgraded")
    assert upgraded.code == 0 and ":bundle" not in upgraded.stages(cached=True)
    assert log.read_text().count("simulate") > before + 2


def test_what_gates_keep_of_engines_and_at_the_end_is_in_the_bundle(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(phase: Phase, *, each_graph: bool) -> Gate:
        def check(shipped: Shipped, advance: Advance) -> Checked:
            return Checked([Finding(phase, shipped.name, holds=True)], receipt={phase: shipped.name or "whole"})

        return Gate(phase, check, phases=(phase,), each_graph=each_graph)

    environment(monkeypatch, tmp_path / "vendor")
    late = (noted("engines", each_graph=True), noted("end", each_graph=False))
    monkeypatch.setattr(gates, "GATES", (*gates.GATES, *late))
    for out in ("noted", "recalled"):
        assert build(project, out=out).code == 0
        with read_bundle(project.folder / out) as bundle:
            receipts = json.loads(bundle.read_file("receipts.json"))
        assert (receipts["parity"]["net"]["engines"], receipts["bundle"]["end"]) == ("net", "whole")
        assert receipts["parity"]["net"]["compared"]


def sabotage(monkeypatch: pytest.MonkeyPatch, folder: Path, old: str, new: str) -> None:
    """Let the vendor's script do something else."""
    text = SCRIPT.read_text()
    assert text.count(old) == 1
    (folder / "vendor.py").write_text(text.replace(old, new))
    monkeypatch.setattr(target, "SCRIPT", folder / "vendor.py")


def test_a_simulator_that_computes_otherwise_fails_the_build(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, tmp_path / "vendor")
    sabotage(monkeypatch, tmp_path, "value + b[", "value - b[")
    before = digest_of(project.folder)
    ended = project.build(out="other", recipe="counting.yaml", cached=False)
    assert ended.code == 4
    assert "stage verify" in ended.message and "expected y" in ended.message
    assert {name: digest for name, digest in digest_of(project.folder).items() if "failure" not in name} == before


@pytest.mark.parametrize("has_vendor", [True, False])
def test_the_doctor_lists_the_parts_of_the_target(
    has_vendor: bool, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_vendor:
        environment(monkeypatch, tmp_path / "vendor")
    monkeypatch.setenv("COLUMNS", "200")
    rows = [re.split(r"\s{2,}", line) for line in project.run("doctor").out.splitlines() if line.startswith("abacus")]
    if has_vendor:
        assert rows == [["abacus", "yes", "yes", ""], ["abacus", "abacus toolchain", "2.1", ""]]
    else:
        cure = f"set {HOME} to the interpreter that has it"
        target, (*names, found, told, _) = rows
        assert (target, names) == (["abacus", "yes", "no", ""], ["abacus", "abacus toolchain"])
        assert (
            ABSENT.startswith(found) and found.startswith("expected the interpreter") and told == cure
        )  # it is wrapped


def test_a_toolchain_that_crashes_is_a_part_like_any_other(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, tmp_path / "vendor")
    sabotage(monkeypatch, tmp_path, '(out / "version.txt").write_text(VERSION)', "raise OSError('no licence')")
    (part,) = Abacus().parts()
    assert "vendor.py ended with 1" in part.found and "OSError: no licence" in part.found
    assert Abacus().absent() == part.found
    assert project.run("doctor").code == 0


def test_an_operator_that_the_device_lacks_is_refused_by_name(project: Project) -> None:
    ir.save(model("y = Softmax(s)"), project.folder / "net.onnx")
    before = digest_of(project.folder)
    ended = build(project, out="other")
    assert ended.code == 3
    assert "stage abacus, graph net, node y_softmax, op Softmax" in ended.message
    assert "expected one of Add, MatMul, Relu on matrices, got Softmax" in ended.message
    assert digest_of(project.folder) == before


def test_without_the_toolchain_the_bundle_waits_for_it(
    project: Project, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Abacus().absent() == ABSENT
    strict = build(project, "--strict", out="waiting")
    assert (strict.code, strict.message.startswith(f"error: target abacus: {ABSENT}")) == (5, True)
    ended = build(project, out="waiting")
    assert ended.code == 0, ended.err
    assert ended.report["engines"] == [
        {"graph": "net", "status": "not built", "reason": ABSENT, "reached": "linted", "by": ""}
    ]
    assert ended.report["verdict"] == "all gates hold for the graphs; engines linted, not built"
    assert project.run("finish", "waiting").code == 5
    environment(monkeypatch, tmp_path / "vendor")
    assert (
        project.run("finish", "waiting").out == "waiting: engines of net built and verified in the vendor's simulator\n"
    )
    engines = {name: digest for name, digest in digest_of(project.folder / "waiting").items() if "engines/" in name}
    direct = digest_of(made.project.folder / "bundle")
    assert engines == {name: direct[name] for name in direct if "engines/" in name}


@pytest.mark.parametrize(
    ("change", "code", "sentence"),
    [
        ("os.kill(os.getpid(), 11)", 3, "expected vendor.py to end by itself, got a process ended by SIGSEGV"),
        ("raise VendorRefuses('no rod is free')", 3, "no rod is free"),
    ],
)
def test_whatever_ends_the_toolchain_the_bundle_is_the_one_before(
    change: str, code: int, sentence: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build(project, out="waiting").code == 0
    environment(monkeypatch, tmp_path / "vendor")
    end = '    (out / "built.json").write_text(json.dumps(built))\n'
    sabotage(monkeypatch, tmp_path, end, f"    import os\n    {change}\n{end}")
    before = digest_of(project.folder)
    ended = project.run("finish", "waiting")
    assert (ended.code, sentence in ended.message) == (code, True), ended.message
    assert digest_of(project.folder) == before


def test_a_graph_that_only_the_vendor_refuses_is_refused_in_its_words(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, tmp_path / "vendor")
    ir.save(model(width=2000), project.folder / "net.onnx")
    before = digest_of(project.folder)
    ended = build(project, out="other")
    assert ended.code == 3
    assert "expected at most 4096 beads, got 8015" in ended.message
    assert digest_of(project.folder) == before


def test_a_wrong_option_is_answered_with_its_line(project: Project) -> None:
    project.replace("counting.yaml", "rods: 17", "rods: many")
    ended = build(project, out="other")
    assert (ended.code, "abacus: rods: expected int, got 'many'" in ended.message) == (2, True)
    assert "counting.yaml:" in ended.message
