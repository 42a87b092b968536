"""Builds for Qualcomm's NPU, with a stand-in for the vendor: built, executed in a closed loop, refused by name."""

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
from compiler.graph.stages import Lowered
from compiler.targets.qnn.environment import ENVIRONMENT
from compiler.targets.qnn.target import Qnn
from tests.compiler.targets.qnn.recipes import calibrate_on_random_caches, for_the_npu, on_integers
from tests.kit.calibration import with_streams
from tests.kit.graphs import parse
from tests.kit.models.project import TIMES, Ended, Project, digest_of
from tests.kit.models.shared import shared_project
from tests.kit.stand_in_environment import folder_with_stand_in

VERDICT = "all gates hold; artefact executed in the vendor's simulator"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of environments with the stand-in."""
    return folder_with_stand_in(ENVIRONMENT, "stand_in_qnn", tmp_path_factory)


@dataclasses.dataclass(frozen=True)
class Made:
    """The project with the bundle `npu`, and how its build ended."""

    project: Project
    ended: Ended


@pytest.fixture(scope="module")
def made(here: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_TOOLCHAINS", str(here))
        project = for_the_npu(shared_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("npu") / "tiny"))
        return Made(project, project.build("--strict", out="npu"))


@pytest.fixture
def project(made: Made, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy where the toolchain is."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    copied = made.project.copy_to(tmp_path / "tiny")
    shutil.copytree(made.project.folder / "npu", copied.folder / "npu")
    return copied


@pytest.fixture
def absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without environments."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "none"))
    return tmp_path / "none/qnn"


def test_a_recipe_is_compiled_and_executed_in_a_closed_loop(made: Made) -> None:
    ended, project = made.ended, made.project
    assert ended.code == 0, ended.err
    assert ended.report["verdict"] == VERDICT
    assert ended.report["engines"][0]["reached"] == "simulated"
    assert "artefact executed in the vendor's simulator" in ended.out
    assert ended.report["speed"] == []
    found = {(each["gate"], each["subject"]): each for each in ended.report["gates"]}
    logits = found["simulator.sqnr_db", "logits"]
    assert logits["measured"] > 50 and re.search(r"first chunk \d.* dB, of the last \d.* dB", logits["detail"])
    assert found["simulator.argmax", "logits"]["measured"] > 0.95
    assert "2 calls again with NaN" in found["simulator.poison", ""]["detail"]
    states = [subject for gate, subject in found if gate == "simulator.sqnr_db" and subject != "logits"]
    assert len(states) == 6
    graph = json.loads((project.folder / "npu/manifest.json").read_text())["graphs"]["net"]
    built_with = graph["engine"]["built_with"]
    assert (built_with["soc"], built_with["soc name"], built_with["onnxruntime-qnn"]) == ("57", "SM8650", "2.7.0")
    receipts = json.loads((project.folder / "npu/receipts.json").read_text())
    loop = receipts["parity"]["net"]["closed_loop"]
    assert (loop["chunks"], loop["words"]) == (8, "artefact executed in the vendor's simulator")


def test_the_bundle_runs_in_the_simulator_and_says_so(project: Project) -> None:
    verified = project.run("verify", "npu")
    assert verified.code == 0, verified.err
    assert "net: executed in the vendor's simulator, on no device" in verified.out
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(project.folder / "npu")
        assert model.simulated == ("net",)
        with model.open_stream() as stream:
            outputs = stream.push({"features": np.ones((1, 4, 8), np.float32)})
        assert outputs["logits"].shape == (1, 4, 40) and np.isfinite(outputs["logits"]).all()


def test_a_context_of_which_a_byte_changed_is_refused(project: Project) -> None:
    path = next((project.folder / "npu/engines").glob("*.onnx"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    verified = project.run("verify", "npu")
    assert verified.code in (2, 3) and f"engines/{path.name}" in verified.message, verified.err


@pytest.mark.slow
def test_a_build_from_the_cache_runs_the_loop_again_and_gives_the_same_bundle(project: Project) -> None:
    second = project.build(out="two")
    assert second.code == 0, second.err
    assert ":bundle" in second.stages(cached=True)
    assert digest_of(project.folder / "npu", TIMES) == digest_of(project.folder / "two", TIMES)
    assert {each["gate"] for each in second.report["gates"]} >= {"simulator.max_abs", "simulator.poison"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        ("wrong", 4, "expected engines that reproduce the recorded outputs"),
        ("leak", 4, "unchanged by NaN in hidden places, got other values at chunk 0"),
        ("crash", 3, "a process ended by SIGSEGV"),
    ],
)
def test_a_simulator_that_computes_otherwise_fails_the_build(
    fault: str, code: int, sentence: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest_of(project.folder)
    monkeypatch.setenv("STAND_IN_QNN", fault)
    ended = project.build(out="other")
    assert (ended.code, sentence in ended.message) == (code, True), ended.message
    assert {name: digest for name, digest in digest_of(project.folder).items() if "failure" not in name} == before


@pytest.mark.slow
def test_without_the_toolchain_the_bundle_waits_for_it(project: Project, absent: Path) -> None:
    ended = project.build(out="waits")
    assert ended.code == 0, ended.err
    assert ended.report["engines"][0]["status"] == "not built"
    assert f"expected the environment {absent}, got none" in ended.report["engines"][0]["reason"]
    assert project.build("--strict", out="other").code == 5
    assert project.run("finish", "waits").code == 5


@pytest.mark.slow
def test_a_bundle_is_finished_where_the_toolchain_is(
    project: Project, absent: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.build(out="waits").code == 0
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    finished = project.run("finish", "waits")
    assert finished.code == 0, finished.err
    assert "engines of net built and verified in the vendor's simulator" in finished.out


def test_a_bundle_where_neither_simulator_nor_device_is_names_both(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "none"))
    verified = project.run("verify", "npu")
    assert verified.code == 5
    assert "expected the package onnxruntime-qnn of a device, or the vendor's simulator in" in verified.message
    assert "doctor --install qnn" in verified.message


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"soc": "SM9999"}, "soc: expected an SoC of Qualcomm, got 'SM9999'"),
        ({"soc": 35}, r"soc: expected an SoC whose HTP computes in float16, got SM7325 \(35\), which has integers"),
        ({"precision": "float32"}, "precision: expected one of float16, a16w8, a8w8, got 'float32'"),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: dict[str, str], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        Qnn(**option)  # type: ignore[arg-type]


@pytest.fixture
def plain(
    here: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """The project before a target is written into it, where the toolchain is."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    return shared_project(tmp_path_factory).copy_to(tmp_path / "plain")


@pytest.mark.parametrize(("precision", "least_db", "type_name"), [("a16w8", 30.0, "uint16"), ("a8w8", 15.0, "uint8")])
def test_on_integers_every_value_of_every_bucket_has_codes(
    precision: str, least_db: float, type_name: str, plain: Project
) -> None:
    """The SoC has integers alone."""
    ended = on_integers(plain, precision, least_db, soc=35).build("--strict", out="npu")
    assert ended.code == 0, ended.err
    assert ended.report["verdict"] == VERDICT
    assert json.loads((plain.folder / "npu/qnn/net.build_plan.json").read_text())["precision"] == precision
    for file in sorted((plain.folder / "npu/graphs").glob("*.onnx")):
        model = ir.load(file)
        points = [node.inputs[2] for node in model.graph if node.op_type == "QuantizeLinear"]
        assert points and {each.dtype for each in points if each is not None} == {ir.DataType[type_name.upper()]}
        assert not [
            node for node in model.graph if node.op_type == "Cast" and node.outputs[0].dtype == ir.DataType.BOOL
        ]
    second = plain.build(out="two")
    assert second.code == 0 and digest_of(plain.folder / "npu", TIMES) == digest_of(plain.folder / "two", TIMES)


def test_before_it_is_rounded_a_graph_need_not_be_one_that_the_device_takes() -> None:
    """Half precision takes no edges, which codes do; what codes are compared with is neither."""
    body = 'pads = Constant<value = int64[4] {0, 1, 0, 1}>()  y = Pad<mode = "edge">(x, pads)'
    model = parse(f"(float[batch,4] x) => (float[batch,6] y) {{ {body} }}", {})
    streams = [[{"x": np.ones((1, 4), np.float32)}]]
    graph = with_streams(Lowered("net", model, batch_axis="batch", data_outputs=("y",)), *streams)
    for target in (Qnn(precision="a16w8", soc=35), Qnn(precision="a16w8", soc=35).unrounded()):
        built = target.emit(graph, {"batch": (1,)})
        assert len(built.artifacts) == 1
    with pytest.raises(Refused, match="Pad with mode=edge"):
        Qnn().emit(graph, {"batch": (1,)})


def test_ranges_of_random_caches_do_not_pass(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate_on_random_caches(monkeypatch)
    ended = on_integers(plain, "a16w8", 30.0).build("--strict", out="npu")
    assert ended.code == 4, ended.err
    assert not (plain.folder / "npu").exists()


def test_a_node_that_is_left_to_the_cpu_is_refused_with_its_line(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    program = {"bucket": "", "graph": "graphs/net.static.onnx", "engine": "engines/net.static.onnx"}
    for folder in ("graphs", "qnn"):
        (tmp_path / "bundle" / folder).mkdir(parents=True)
    (tmp_path / "bundle/qnn/net.build_plan.json").write_text(json.dumps({"programs": [program]}))
    graph = parse("(float[1,4] x) => (float[1,4] y) { a = Relu(x)  y = Erf(a) }", {})
    ir.save(graph, tmp_path / "bundle" / program["graph"])
    with pytest.raises(Refused) as caught:
        Qnn(soc=69).compile(tmp_path / "bundle", tmp_path / "engines", tmp_path)
    place = caught.value.place
    assert (place.node, place.op, place.source) == ("y_erf", "Erf", "tiny.py:2 in forward: Erf")
    assert caught.value.message == (
        "graphs/net.static.onnx: expected a graph that SM8750 computes as a whole, got 1 that the vendor leaves to the "
        "CPU: y_erf (Erf)"
    )
