"""The script that speaks for the vendor: version, contexts, what it says of nodes that are left to the CPU."""

import json
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from compiler.errors import Refused, ToolchainAbsent
from compiler.targets.qnn.environment import ENVIRONMENT
from compiler.targets.toolchain import Toolchain
from tests.kit.graphs import parse
from tests.kit.patience import PATIENCE_S
from tests.kit.stand_in_environment import folder_with_stand_in, stand_in_for


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of environments with the stand-in."""
    return folder_with_stand_in(ENVIRONMENT, "stand_in_qnn", tmp_path_factory)


@pytest.fixture(autouse=True)
def environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))


def ran(request: dict[str, object], out: Path) -> Path:
    Toolchain(ENVIRONMENT.interpreter, ENVIRONMENT.worker, PATIENCE_S).run(request, out)
    return out


def compiled(folder: Path, *operators: str) -> Path:
    """What comes of a graph per operator."""
    (folder / "graphs").mkdir()
    programs = []
    for operator in operators:
        file = f"graphs/{operator}.onnx"
        ir.save(parse(f"(float[1,4] x) => (float[1,4] y) {{ y = {operator}(x) }}", {}), folder / file)
        programs.append({"graph": file, "engine": f"engines/{operator}.onnx"})
    return ran({"task": "compile", "bundle": str(folder), "soc": 43, "programs": programs}, folder / "made")


def test_it_says_its_version(tmp_path: Path) -> None:
    text = (ran({"task": "version"}, tmp_path / "out") / "version.txt").read_text()
    assert text.startswith("onnxruntime-qnn 2.7.0, onnxruntime 1.")


def test_every_graph_becomes_a_context_for_the_soc(tmp_path: Path) -> None:
    made = compiled(tmp_path, "Relu", "Abs")
    told = json.loads((made / "built.json").read_text())
    assert (told["refused"], set(told["versions"])) == ([], {"onnxruntime-qnn", "onnxruntime"})
    for name in ("Relu", "Abs"):
        properties = {each.key: each.value for each in onnx.load(made / f"engines/{name}.onnx").metadata_props}
        assert properties["stand_in.context"] == "43"


def test_nodes_that_are_left_to_the_cpu_are_told_and_the_others_of_the_plan_still_tried(tmp_path: Path) -> None:
    told = json.loads((compiled(tmp_path, "Erf", "Relu") / "built.json").read_text())
    (refused,) = told["refused"]
    assert (refused["graph"], refused["nodes"]) == ("graphs/Erf.onnx", [["y_erf", "Erf"]])
    assert "Unsupported nodes in QNN EP" in refused["reason"]


def test_a_compiler_that_crashes_is_a_refusal_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_QNN", "crash")
    with pytest.raises(Refused, match=r"worker\.py to end by itself, got a process ended by SIGSEGV"):
        compiled(tmp_path, "Relu")


def test_a_provider_without_devices_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_QNN", "no devices")
    with pytest.raises(
        ToolchainAbsent, match="expected a device of the provider QNN, its simulator included, got none"
    ):
        ran({"task": "version"}, tmp_path / "out")


def test_an_environment_without_the_package_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "empty"))
    stand_in_for(ENVIRONMENT, tmp_path)
    with pytest.raises(ToolchainAbsent, match="expected the package onnxruntime-qnn, got No module named"):
        ran({"task": "version"}, tmp_path / "out")
