"""What is known of a vendor's environment, and every way in which it may not be here."""

import shutil
from pathlib import Path

import pytest

from compiler.targets import TARGETS
from compiler.targets.base import Part, missing, part_of
from compiler.targets.environment import INSTALLED, Environment
from tests.kit.stand_in_environment import environment_in, stand_in_for


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "toolchains"))
    return environment_in(tmp_path / "vendor")


def test_it_lies_where_the_variable_says_or_in_the_current_folder(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert environment.folder == tmp_path / "toolchains/vendor"
    monkeypatch.delenv("SLIPWAY_TOOLCHAINS")
    monkeypatch.chdir(tmp_path)
    assert environment.folder == tmp_path / ".cache/toolchains/vendor"


def test_its_lock_says_version_and_packages(environment: Environment) -> None:
    assert environment.requirements == ("vendor==1.0", "helper_of_vendor==1.0")
    assert environment.version == "vendor 1.0"
    assert environment.size == "3 MB to fetch, 7 MB on disk"
    assert environment.install.endswith(" doctor --install vendor")


def test_a_complete_one_has_no_fault_and_is_a_part_with_its_version(environment: Environment) -> None:
    stand_in_for(environment, environment.lock.parent)
    assert environment.fault() == ""
    assert part_of(environment) == Part("toolchain", f"vendor 1.0, {environment.folder}")


def test_what_is_absent_names_the_command_that_installs_it(environment: Environment) -> None:
    part = part_of(environment)
    assert missing([part]) == f"expected the environment {environment.folder}, got none"
    assert part.cure == f"`{environment.install}`"


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda each: (each.folder / INSTALLED).unlink(), "expected a complete environment in"),
        (lambda each: (each.folder / INSTALLED).write_bytes(b"\xff"), "expected a complete environment in"),
        (lambda each: (each.folder / INSTALLED).write_text("vendor==0.9\n"), "expected vendor 1.0 as it is locked in"),
        (lambda each: shutil.rmtree(each.folder / "bin"), "it was moved or removed"),
    ],
)
def test_one_that_is_not_as_it_was_made_is_a_fault(harm: object, sentence: str, environment: Environment) -> None:
    stand_in_for(environment, environment.lock.parent)
    harm(environment)  # type: ignore[operator]
    assert sentence in environment.fault()


@pytest.mark.parametrize("kind", [kind for kind in TARGETS.values() if kind.environment is not None])
def test_every_environment_is_exact_and_says_what_is_to_be_known_first(kind: type) -> None:
    environment = kind.environment  # type: ignore[attr-defined]
    assert environment.name == kind.name  # type: ignore[attr-defined]
    assert environment.lock.is_file() and environment.worker.is_file()
    assert all(len(line.split("==")) == 2 and " " not in line for line in environment.requirements)
    assert environment.licence and environment.verifies and 0 < environment.fetched_mb < environment.installed_mb
