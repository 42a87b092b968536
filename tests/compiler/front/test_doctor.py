"""The doctor asks every target and says what it lacks."""

import dataclasses
import importlib.metadata
import io
from pathlib import Path

import pytest
from rich.console import Console

from compiler.errors import RecipeError
from compiler.front.doctor import TargetState, diagnose, diagnosis_tables, environments, install_toolchain
from compiler.targets import TARGETS
from compiler.targets.base import Part, Target
from tests.kit.stand_in_environment import environment_in, stand_in_for


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
    parts = sum(len(state.parts) for state in diagnosis.targets)
    rows = [table.row_count for table in diagnosis_tables(diagnosis)]
    assert rows == [len(TARGETS), parts, len(diagnosis.toolchains), len(diagnosis.versions)]


def asked(monkeypatch: pytest.MonkeyPatch, *parts: Part) -> TargetState:
    """What the doctor says of a target that nobody knows."""

    def parts_of(self: Target) -> tuple[Part, ...]:
        return parts

    unknown = type("Unknown", (TARGETS["null"],), {"name": "unknown", "packages": ("onnx",), "parts": parts_of})
    monkeypatch.setitem(TARGETS, "unknown", unknown)
    return next(state for state in diagnose().targets if state.name == "unknown")


def test_every_target_is_asked_for_its_packages_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (Part("simulator", "2.1"), Part("licence", "none", "buy one"))
    assert asked(monkeypatch, *parts) == TargetState("unknown", (), parts)
    assert [state.name for state in diagnose().targets] == sorted(TARGETS)


@pytest.mark.parametrize(("cures", "shown"), [((), ""), (("", ""), "yes"), (("", "buy one"), "no")])
def test_engines_are_built_here_where_no_part_has_a_cure(
    cures: tuple[str, ...], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = asked(monkeypatch, *(Part("part", "found", cure) for cure in cures))
    targets, parts, *_ = diagnosis_tables(dataclasses.replace(diagnose(), targets=(state,)))
    assert [list(column.cells) for column in targets.columns] == [["unknown"], ["yes"], [shown], [""]]
    assert parts.row_count == len(cures)


def test_the_command_is_shown_as_it_is_to_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets are markup where tables are printed, unless they are escaped."""
    cure = "pip install -e '.[vendor]'"
    state = asked(monkeypatch, Part("bindings", "none", cure))
    console = Console(file=io.StringIO(), width=200)
    for table in diagnosis_tables(dataclasses.replace(diagnose(), targets=(state,))):
        console.print(table)
    assert cure in console.file.getvalue()  # type: ignore[attr-defined]


def toolchain_row(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells of the one toolchain."""
    table = diagnosis_tables(dataclasses.replace(diagnose(), toolchains=(environments()["vendor"],)))[2]
    return [str(cell) for column in table.columns for cell in column.cells]


def test_a_toolchain_is_listed_with_its_licence_and_installed_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "toolchains"))
    environment = environment_in(tmp_path / "vendor")
    kind = type("Unknown", (TARGETS["null"],), {"name": "unknown", "environment": environment})
    monkeypatch.setitem(TARGETS, "unknown", kind)
    told = ["vendor 1.0", "terms of the vendor", "3 MB to fetch, 7 MB on disk", "compiles nothing"]
    assert toolchain_row(monkeypatch) == ["vendor", f"no: {environment.install}", *told]
    assert kind().absent() == environment.fault()
    stand_in_for(environment, tmp_path)
    assert toolchain_row(monkeypatch) == ["vendor", "yes", *told]
    assert kind().absent() is None
    said = list[str]()
    install_toolchain("vendor", said.append)
    assert said == [f"vendor: vendor 1.0 is installed in {environment.folder}"]


def test_a_toolchain_that_nobody_knows_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError, match=r"doctor --install: expected the name of a toolchain, got 'onn'; .*'qnn'"):
        install_toolchain("onn", print)
