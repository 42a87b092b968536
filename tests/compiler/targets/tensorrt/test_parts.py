"""What TensorRT needs on a machine, and what is said of each part that is not there."""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.errors import Refused
from compiler.targets.base import Part, missing
from compiler.targets.tensorrt import trial
from compiler.targets.tensorrt.parts import INSTALL_ENGINES, INSTALL_TRIAL, engine_parts, parts_here, trial_part
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import Device
from tests.contract_tensorrt.genuine import VERSIONS

ROOT = Path(__file__).resolve().parents[4]


def no_driver() -> Device:
    raise EngineAbsent("CUDA: expected a CUDA device, got none; buy one")


def a_t4() -> Device:
    return Device("Tesla T4", "7.5", "12.4")


def no_builder() -> str:
    raise EngineAbsent("TensorRT: expected a builder that starts, got a process ended by SIGSEGV; install another")


def test_an_empty_machine_is_told_all_it_lacks_with_cures() -> None:
    parts = engine_parts(no_driver, no_builder, lambda name: None)
    assert [part.name for part in parts] == [
        "driver", "CUDA bindings", "TensorRT bindings", "TensorRT builder and runtime",
    ]  # fmt: skip
    assert all(part.cure for part in parts)
    assert parts[0].found == "CUDA: expected a CUDA device, got none"
    assert parts[3].found == "not tried without driver"


def test_a_whole_machine_lacks_nothing() -> None:
    parts = engine_parts(a_t4, lambda: "10.9.0.34", lambda name: object())
    assert [part.cure for part in parts] == [""] * 4
    assert parts[0].found == "Tesla T4, compute capability 7.5"
    assert parts[1].found == "cuda-python, pycuda"
    assert parts[3].found == "10.9.0.34, both start"


def test_a_builder_that_does_not_start_is_said_where_all_else_is_there() -> None:
    assert engine_parts(a_t4, no_builder, lambda name: object())[3] == Part(
        "TensorRT builder and runtime",
        "TensorRT: expected a builder that starts, got a process ended by SIGSEGV",
        "install the version that fits the driver",
    )


def test_a_folder_called_cuda_or_tensorrt_counts_as_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other packages of NVIDIA's leave a folder `cuda`, and every bundle has a folder `tensorrt`."""
    for folder in ("cuda/pathfinder", "tensorrt", "pycuda"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    parts = {part.name: part for part in engine_parts(a_t4, lambda: "10.16")}
    assert parts["CUDA bindings"].found == "neither cuda-python nor pycuda"
    assert parts["TensorRT bindings"].found == "no package tensorrt"


def test_cuda_bindings_count_where_their_module_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cuda/bindings").mkdir(parents=True)
    for module in ("__init__", "runtime"):
        (tmp_path / f"cuda/bindings/{module}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert engine_parts(a_t4, lambda: "10.16")[1].found == "cuda-python"
    for name in ("cuda", "cuda.bindings"):
        sys.modules.pop(name, None)


def test_the_doctor_says_the_one_command_that_its_page_documents() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert INSTALL_ENGINES in (ROOT / "docs" / "tensorrt.md").read_text()
    assert f"pip install {' '.join(extras['tensorrt'])}" == INSTALL_ENGINES
    for extra, bindings in (("tensorrt", "cuda-python"), ("tensorrt-pycuda", "pycuda")):
        pinned = dict(requirement.split("==") for requirement in extras[extra])
        assert sorted(pinned) == [bindings, "tensorrt-cu12"]
        assert pinned["tensorrt-cu12"] in VERSIONS, "the contract is tested on what is installed"
    cures = {part.cure for part in engine_parts(a_t4, lambda: "10.16", lambda name: None)[1:]}
    assert cures == {INSTALL_ENGINES}


def test_the_reason_why_nothing_is_built_is_the_first_thing_that_is_missing() -> None:
    assert missing(engine_parts(no_driver, no_builder, lambda name: None)) == ("CUDA: expected a CUDA device, got none")
    assert missing(engine_parts(a_t4, no_builder, lambda name: None)) == "neither cuda-python nor pycuda"
    assert missing(engine_parts(a_t4, no_builder, lambda name: name != "tensorrt")) == "no package tensorrt"
    assert missing(engine_parts(a_t4, lambda: "10.16", lambda name: object())) is None


def test_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.targets.tensorrt.parts.cuda.probe", no_driver)
    parts = parts_here()
    assert parts[0].found == "CUDA: expected a CUDA device, got none"
    assert (parts[-1].name, parts[-1].is_needed) == ("TensorRT-RTX builder", False)


def crash() -> str:
    raise Refused("expected build_trial.py to end by itself, got a process ended by SIGSEGV", cure="look")


@pytest.mark.parametrize(
    ("ask", "is_installed", "found"),
    [
        (crash, False, "no package tensorrt_rtx"),
        (crash, True, "expected build_trial.py to end by itself, got a process ended by SIGSEGV"),
        (lambda: "1.6.0.50", True, f"expected version {trial.VERSION}, got 1.6.0.50"),
    ],
)
def test_the_builder_without_a_device_is_absent_of_another_version_or_broken(
    ask: Callable[[], str], is_installed: bool, found: str
) -> None:
    part = trial_part(ask, lambda name: is_installed, is_needed=False)
    assert part == Part("TensorRT-RTX builder", found, INSTALL_TRIAL, is_needed=False)
    assert missing([part]) is None, "engines are built without it, where the device is"
    assert missing([trial_part(ask, lambda name: is_installed, is_needed=True)]) == found


def test_the_builder_of_the_version_that_is_pinned_is_all_that_is_needed() -> None:
    assert trial_part(lambda: trial.VERSION, lambda name: True, is_needed=True).cure == ""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["rtx"]
    assert {requirement.partition("==")[2] for requirement in extra} == {trial.VERSION}
    assert f"pip install {extra[0]}" == INSTALL_TRIAL
    assert INSTALL_TRIAL in (ROOT / "docs" / "tensorrt.md").read_text()
