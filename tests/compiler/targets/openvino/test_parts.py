"""What the doctor says of OpenVINO: its version, or what is wrong and the command that cures it."""

import importlib.metadata
import tomllib
from pathlib import Path
from typing import Any

from compiler.targets.base import missing
from compiler.targets.openvino.parts import INSTALL, parts_of
from runtime_lite.errors import EngineAbsent


def test_the_version_that_is_here_and_what_its_processor_computes_in() -> None:
    (part,) = parts_of()
    assert part.found.startswith(f"{importlib.metadata.version('openvino')}, ") and "FP32" in part.found
    assert missing([part]) is None


def test_what_is_not_here_has_the_command_that_installs_it() -> None:
    def absent() -> Any:
        raise EngineAbsent("expected the package openvino, got none; pip install openvino")

    (part,) = parts_of(absent)
    assert (part.found, part.cure) == ("expected the package openvino, got none", INSTALL)


def test_a_library_that_does_not_start_is_a_part_like_any_other() -> None:
    class Broken:
        def Core(self) -> None:  # noqa: N802 - as OpenVINO calls it
            raise RuntimeError("no plugin for CPU")

    (part,) = parts_of(Broken)
    assert (part.found, part.cure) == ("no plugin for CPU", INSTALL)


def test_what_is_installed_by_hand_is_what_the_project_pins() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pinned,) = project["optional-dependencies"]["openvino"]
    assert INSTALL.endswith(f" {pinned}")
    assert pinned in Path("requirements.lock").read_text(encoding="utf-8").splitlines()
