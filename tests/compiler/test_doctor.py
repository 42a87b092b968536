"""The doctor knows every target and says what it lacks."""

import dataclasses
import importlib.metadata
import io
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from compiler.doctor import (
    INSTALL_ENGINES,
    PACKAGES_BY_TARGET,
    Part,
    TargetState,
    diagnose,
    diagnosis_tables,
    engine_parts,
)
from compiler.targets import TARGETS
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import Device
from tests.contract_tensorrt.genuine import VERSIONS

ROOT = Path(__file__).resolve().parents[2]


def version_without_onnxruntime(package: str) -> str:
    if package == "onnxruntime":
        raise importlib.metadata.PackageNotFoundError(package)
    return "1.0"


def test_everything_works_where_everything_is_installed() -> None:
    diagnosis = diagnose()
    assert [state.missing for state in diagnosis.targets] == [()] * len(TARGETS)
    assert None not in diagnosis.versions.values()


def test_absent_package_is_named_by_the_target_that_needs_it() -> None:
    diagnosis = diagnose(version_without_onnxruntime)
    assert TargetState("onnx_static", ("onnxruntime",)) in diagnosis.targets
    assert TargetState("null", ()) in diagnosis.targets
    assert diagnosis.versions["onnxruntime"] is None
    rows = [table.row_count for table in diagnosis_tables(diagnosis)]
    assert rows == [len(TARGETS), len(diagnosis.parts), len(diagnosis.versions)]


def test_every_target_is_diagnosed() -> None:
    assert PACKAGES_BY_TARGET.keys() == TARGETS.keys()


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
        "tensorrt",
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
    assert parts["TensorRT bindings"].found == "not installed"


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


def test_the_doctor_says_the_one_command_that_the_readme_documents() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert INSTALL_ENGINES in (ROOT / "README.md").read_text()
    assert "[tensorrt]" in INSTALL_ENGINES
    for extra, bindings in (("tensorrt", "cuda-python"), ("tensorrt-pycuda", "pycuda")):
        pinned = dict(requirement.split("==") for requirement in extras[extra])
        assert sorted(pinned) == [bindings, "tensorrt-cu12"]
        assert pinned["tensorrt-cu12"] in VERSIONS, "the contract is tested on what is installed"
    cures = {part.cure for part in engine_parts(a_t4, lambda: "10.16", lambda name: None)[1:]}
    assert cures == {INSTALL_ENGINES}


def test_the_command_is_shown_as_it_is_to_be_typed() -> None:
    """Brackets are markup where tables are printed, unless they are escaped."""
    parts = tuple(engine_parts(a_t4, lambda: "10.16", lambda name: None))
    console = Console(file=io.StringIO(), width=200)
    for table in diagnosis_tables(dataclasses.replace(diagnose(), parts=parts)):
        console.print(table)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count(INSTALL_ENGINES) == sum(part.cure == INSTALL_ENGINES for part in parts) > 0


def test_a_target_whose_engines_cannot_be_built_here_still_works() -> None:
    targets, parts, _ = diagnosis_tables(diagnose())
    assert parts.row_count == 4
    assert list(targets.columns[0].cells) == sorted(TARGETS)
