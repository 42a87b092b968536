"""Builds for Arm's NPU, with a stand-in for the vendor: built, executed in a closed loop, refused by name."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import runtime_lite
from compiler.errors import RecipeError, Refused
from compiler.targets.ethos_u import target as ethos_u
from compiler.targets.ethos_u.environment import ENVIRONMENT
from compiler.targets.ethos_u.target import EthosU
from tests.compiler.targets.ethos_u.graphs import LENGTHS, attention
from tests.compiler.targets.ethos_u.recipes import for_the_npu
from tests.kit import stand_in_environment
from tests.kit.models.project import Ended, Project, digest_of
from tests.kit.models.shared import shared_project
from tests.kit.stand_in_environment import folder_with_stand_in

WORDS = "TOSA graph executed in the vendor's reference model, command stream compiled and not executed"

WORKER = Path(stand_in_environment.__file__).parent / "stand_in_ethos_u/stand_in_worker.py"

STAND_IN = dataclasses.replace(ENVIRONMENT, worker=WORKER)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of environments with the stand-in."""
    return folder_with_stand_in(ENVIRONMENT, "stand_in_ethos_u", tmp_path_factory)


@dataclasses.dataclass(frozen=True)
class Made:
    """The project with the bundle `npu`, and how its build ended."""

    project: Project
    ended: Ended


@pytest.fixture(scope="module")
def made(here: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_TOOLCHAINS", str(here))
        patch.setattr(ethos_u, "ENVIRONMENT", STAND_IN)
        project = for_the_npu(shared_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("npu") / "tiny"))
        return Made(project, project.build("--strict", out="npu"))


@pytest.fixture
def project(made: Made, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy where the toolchain is."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    monkeypatch.setattr(ethos_u, "ENVIRONMENT", STAND_IN)
    copied = made.project.copy_to(tmp_path / "tiny")
    shutil.copytree(made.project.folder / "npu", copied.folder / "npu")
    return copied


@pytest.fixture
def absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without environments."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "none"))
    return tmp_path / "none/ethos_u"


def test_a_recipe_is_lowered_and_executed_in_a_closed_loop(made: Made) -> None:
    ended, project = made.ended, made.project
    assert ended.code == 0, ended.err
    assert ended.report["verdict"] == f"all gates hold; {WORDS}"
    assert ended.report["engines"][0]["reached"] == "simulated"
    assert WORDS in " ".join(ended.out.split())
    found = {(each["gate"], each["subject"]): each for each in ended.report["gates"]}
    logits = found["simulator.sqnr_db", "logits"]
    assert logits["measured"] > 40 and re.search(r"first chunk \d.* dB, of the last \d.* dB", logits["detail"])
    assert found["simulator.argmax", "logits"]["measured"] > 0.95
    assert "2 calls again with NaN" in found["simulator.poison", ""]["detail"]
    manifest = json.loads((project.folder / "npu/manifest.json").read_text())
    engine = manifest["graphs"]["net"]["engine"]
    assert engine["built_with"]["accelerator"] == "ethos-u85-256"
    assert engine["built_with"]["Vela's estimate of cycles"] == "1000.0"
    assert engine["built_with"]["TOSA against float32 in logits"].startswith("60.0 dB")
    assert ended.report["call_bytes"] == {"net": 77}, "integers of the device, not numbers of the graph"
    assert engine["built_with"]["system"] == "Ethos_U85_SYS_DRAM_Mid"
    parts = {name for name in manifest["files"] if name.startswith("engines/")}
    assert {Path(name).suffixes[-1] for name in parts} == {".tosa", ".onnx", ".json", ".npz"}
    receipts = json.loads((project.folder / "npu/receipts.json").read_text())
    loop = receipts["parity"]["net"]["closed_loop"]
    assert (loop["chunks"], loop["words"]) == (8, WORDS)


def test_the_bundle_runs_in_the_reference_model_and_says_so(project: Project) -> None:
    verified = project.run("verify", "npu")
    assert verified.code == 0, verified.err
    assert "net: executed in the vendor's simulator, on no device" in verified.out
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(project.folder / "npu")
        assert model.simulated == ("net",)
        with model.open_stream() as stream:
            outputs = stream.push({"features": np.ones((1, 4, 8), np.float32)})
        assert outputs["logits"].shape == (1, 4, 40) and np.isfinite(outputs["logits"]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        ("wrong", 4, "expected engines that reproduce the recorded outputs"),
        ("invalid", 1, "expected a TOSA graph that the reference model runs, got TOSA_ERROR"),
        ("crash", 3, "a process ended by SIGSEGV"),
        ("nonsense", 3, "expected an answer in JSON of stand_in_worker.py"),
    ],
)
def test_a_toolchain_that_fails_fails_the_build_by_name(
    fault: str, code: int, sentence: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest_of(project.folder)
    monkeypatch.setenv("STAND_IN_ETHOS_U", fault)
    ended = project.build(out="other")
    assert (ended.code, sentence in ended.message) == (code, True), ended.message
    assert {name: digest for name, digest in digest_of(project.folder).items() if "failure" not in name} == before


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended_and_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_ETHOS_U", "hang")
    monkeypatch.setattr(ethos_u, "COMPILE_S", 2.0)
    ended = project.build(out="other")
    assert (ended.code, "to end within 2 s, got no end" in ended.message) == (3, True), ended.message


@pytest.mark.slow
def test_without_the_toolchain_the_bundle_waits_for_it_and_is_finished_where_it_is(
    project: Project, absent: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = project.build(out="waits")
    assert ended.code == 0, ended.err
    assert ended.report["engines"][0]["status"] == "not built"
    assert f"expected the environment {absent}, got none" in ended.report["engines"][0]["reason"]
    assert project.build("--strict", out="other").code == 5
    assert project.run("finish", "waits").code == 5
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    finished = project.run("finish", "waits")
    assert finished.code == 0, finished.err
    assert "engines of net built and verified in the vendor's simulator" in finished.out


def test_a_bundle_where_no_reference_model_is_says_what_is_missing(project: Project, absent: Path) -> None:
    verified = project.run("verify", "npu")
    assert verified.code == 5
    assert f"expected Arm's reference model in {absent}, or the firmware of a device" in verified.message
    assert "doctor --install ethos_u" in verified.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "code", "sentence"),
    [
        ("buckets: [1]", "buckets: [1, 2]", 3, "expected graphs of one row, got buckets [1, 2]"),
        (
            '  calibration: {feeds: "tiny_data:calibration", count: 4}\n',
            "",
            2,
            "expected data.calibration, as ethos_u takes ranges of values from it, got none",
        ),
    ],
)
def test_a_recipe_that_the_target_cannot_build_is_refused(
    old: str, new: str, code: int, sentence: str, project: Project
) -> None:
    project.replace("tiny.yaml", old, new)
    ended = project.build(out="other")
    assert (ended.code, sentence in ended.message) == (code, True), ended.message


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"accelerator": "ethos-u99"}, "accelerator: expected one of Arm's Ethos-U, got 'ethos-u99'"),
        ({"precision": "float16"}, "precision: expected one of int8, int16x8, got 'float16'"),
        (
            {"accelerator": "ethos-u55-128", "precision": "int16x8"},
            "precision: expected int8 for ethos-u55-128, which has no products of 16-bit data, got 'int16x8'",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: dict[str, str], sentence: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(sentence)):
        EthosU(**option)  # type: ignore[arg-type]


def bundle_of_attention(folder: Path) -> Path:
    """A bundle before its engines are built, with the least that `compile` reads."""
    model = attention()
    for name in ("graphs", "ethos_u"):
        (folder / name).mkdir(parents=True)
    ir.save(model, folder / "graphs/net.onnx")
    (hidden,) = (str(node.name) for node in model.graph if node.outputs[0].name == "shown")
    program = {
        "graph": "graphs/net.onnx",
        "calls": "ethos_u/net.calls.npz",
        "states": {"cache": "next"},
        "lengths": LENGTHS,
        "limits": {hidden: {"shown": 40.0, "hidden": -60.0}},
        "engine": "engines/net.tosa",
        "host": "engines/net.host.onnx",
        "behind": None,
        "border": "engines/net.border.json",
        "commands": "engines/net.commands.npz",
    }
    plan = {"graph": "net", "system_config": "a", "memory_mode": "b", "programs": [program]}
    (folder / "ethos_u/net.build_plan.json").write_text(json.dumps(plan))
    return folder


def test_a_node_that_is_left_to_the_cpu_is_refused_with_its_line(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    monkeypatch.setattr(ethos_u, "ENVIRONMENT", STAND_IN)
    monkeypatch.setenv("STAND_IN_ETHOS_U", "cpu")
    bundle = bundle_of_attention(tmp_path / "bundle")
    worker = WORKER.read_text().replace('"y_relu"', '"shares_softmax"')
    (tmp_path / "worker.py").write_text(worker)
    monkeypatch.setattr(ethos_u, "ENVIRONMENT", dataclasses.replace(STAND_IN, worker=tmp_path / "worker.py"))
    with pytest.raises(Refused) as caught:
        EthosU().compile(bundle, tmp_path / "engines", tmp_path)
    place = caught.value.place
    assert (place.node, place.op) == ("shares_softmax", "Softmax")
    assert place.source.startswith("tiny.py:")
    assert caught.value.message == (
        "graphs/net.onnx: expected a graph that ethos-u85-256 computes as a whole, got 1 that the vendor leaves to the "
        "CPU: shares_softmax (aten.relu)"
    )
