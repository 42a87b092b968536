"""Environments of toolchains: made whole and in their place, or not at all."""

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

from compiler.errors import ToolchainAbsent
from compiler.targets import install as installing
from compiler.targets.environment import Environment
from compiler.targets.install import install
from tests.kit.stand_in_environment import WORKER, environment_in, write_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where packages are found."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "toolchains"))
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    write_wheel(tmp_path / "wheels", "vendor", "VERSION = '1.0'")
    write_wheel(tmp_path / "wheels", "helper_of_vendor", "")
    return tmp_path / "wheels"


def left(environment: Environment) -> list[str]:
    folder = environment.folder.parent
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_licence_and_size_are_told_before_anything_is_fetched_then_each_package(wheels: Path, tmp_path: Path) -> None:
    environment, said = environment_in(tmp_path / "vendor"), list[str]()
    install(environment, said.append)
    assert said[:3] == [
        "vendor: vendor 1.0 and 1 packages that it needs",
        "licence: terms of the vendor",
        f"size: 3 MB to fetch, 7 MB on disk, in {environment.folder}",
    ]
    assert [line.partition(" ")[0] for line in said[3:]] == [
        "fetching",
        "fetching",
        "installing",
        "starting",
        "vendor:",
    ]
    assert "(2 of 2)" in said[4]
    assert said[-1] == f"vendor: vendor 1.0 is installed in {environment.folder}; it compiles nothing"
    assert (environment.fault(), left(environment)) == ("", ["vendor"])


def test_what_is_installed_is_left_alone_and_another_lock_replaces_it(wheels: Path, tmp_path: Path) -> None:
    environment, said = environment_in(tmp_path / "vendor"), list[str]()
    install(environment, said.append)
    (environment.folder / "mark").touch()
    said.clear()
    install(environment, said.append)
    assert said == [f"vendor: vendor 1.0 is installed in {environment.folder}"]
    assert (environment.folder / "mark").exists()
    write_wheel(wheels, "vendor", "VERSION = '1.1'", "1.1")
    newer = environment_in(tmp_path / "vendor", "vendor==1.1\n")
    assert "expected vendor 1.1 as it is locked" in newer.fault()
    install(newer, said.append)
    assert (newer.fault(), left(newer), (newer.folder / "mark").exists()) == ("", ["vendor"], False)


@pytest.mark.parametrize(
    ("lock", "worker", "sentence"),
    [
        ("vendor==2.0\n", WORKER, r"vendor: expected its packages to be installed, got .*vendor==2\.0"),
        ("vendor==1.0\n", "import nothing_of_the_kind", "expected a toolchain that starts, got: .*nothing_of_the_kind"),
        ("vendor==1.0\n", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "a process ended by SIGSEGV"),
    ],
)
def test_what_fails_leaves_nothing_behind(lock: str, worker: str, sentence: str, wheels: Path, tmp_path: Path) -> None:
    environment = environment_in(tmp_path / "vendor", lock, worker)
    with pytest.raises(ToolchainAbsent, match=sentence):
        install(environment, lambda line: None)
    assert left(environment) == []


def test_a_failure_leaves_the_one_before(wheels: Path, tmp_path: Path) -> None:
    environment = environment_in(tmp_path / "vendor")
    install(environment, lambda line: None)
    (environment.folder / "mark").touch()
    with pytest.raises(ToolchainAbsent):
        install(environment_in(tmp_path / "vendor", "vendor==2.0\n"), lambda line: None)
    assert (left(environment), (environment.folder / "mark").exists()) == (["vendor"], True)


def test_an_interruption_leaves_nothing_behind(wheels: Path, tmp_path: Path) -> None:
    def interrupted(line: str) -> None:
        if line.startswith("fetching"):
            raise KeyboardInterrupt

    environment = environment_in(tmp_path / "vendor")
    with pytest.raises(KeyboardInterrupt):
        install(environment, interrupted)
    assert left(environment) == []


def test_what_a_killed_installation_has_left_is_removed_by_the_next_one(wheels: Path, tmp_path: Path) -> None:
    environment = environment_in(tmp_path / "vendor")
    (environment.folder.parent / ".vendor-half/made").mkdir(parents=True)
    install(environment, lambda line: None)
    assert left(environment) == ["vendor"]


def test_one_waits_for_another(wheels: Path, tmp_path: Path) -> None:
    environment, said = environment_in(tmp_path / "vendor"), list[str]()
    environment.folder.parent.mkdir()
    other = os.open(environment.folder.parent, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)

    def told(line: str) -> None:
        said.append(line)
        if line == "waiting for another installation":
            os.close(other)

    install(environment, told)
    assert said[3] == "waiting for another installation" and environment.fault() == ""


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "toolchains"))
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'ERROR: Could not install: [Errno 28] No space left on device'\nexit 1\n")
    pip.chmod(0o755)
    environment = environment_in(tmp_path / "vendor")
    monkeypatch.setattr(installing, "python_of", lambda each: pip)
    with pytest.raises(OSError) as caught:
        install(environment, lambda line: None)
    assert (caught.value.errno, left(environment)) == (errno.ENOSPC, [])


def test_a_version_of_python_that_is_not_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "toolchains"))
    environment = environment_in(tmp_path / "vendor")
    object.__setattr__(environment, "python", "3.2")
    said = list[str]()
    with pytest.raises(ToolchainAbsent, match=r"vendor: expected Python 3\.2 as python3\.2, got none; install it"):
        install(environment, said.append)
    assert left(environment) == [] and said[1] == "licence: terms of the vendor"


def test_a_version_of_python_under_its_own_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python3.2").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    environment = environment_in(tmp_path / "vendor")
    object.__setattr__(environment, "python", "3.2")
    assert installing.python_of(environment) == tmp_path / "python3.2"
