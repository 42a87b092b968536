"""The two distributions: what is in their wheels, what they ask for, and that they work where there is no checkout."""

import email
import fnmatch
import importlib
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import runtime_lite
from tests.kit.models.project import stream_project
from tests.runtime_lite.bundles import write_streaming_bundle

ROOT = Path(__file__).resolve().parents[1]

PROJECTS = {"compiler": ROOT, "runtime_lite": ROOT / "distributions" / "runtime"}
"""Where the metadata of a distribution lie, by the module that it installs."""


def project(module: str) -> dict[str, Any]:
    return tomllib.loads((PROJECTS[module] / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(metadata: dict[str, Any]) -> list[Requirement]:
    """Of a distribution and of all its extras."""
    extras = metadata.get("optional-dependencies", {})
    return [Requirement(text) for texts in (metadata["dependencies"], *extras.values()) for text in texts]


def files_of(module: str) -> set[str]:
    """Every file of a module in the checkout, data included."""
    found = (ROOT / module).rglob("*")
    return {path.relative_to(ROOT).as_posix() for path in found if path.is_file() and "__pycache__" not in path.parts}


@pytest.mark.parametrize("module", PROJECTS)
def test_every_file_of_a_module_is_in_its_wheel(module: str) -> None:
    tools = project(module)["tool"]["setuptools"]
    packages = tools["packages"]["find"]["include"]
    data = {f"{package}/{name}" for package, names in tools["package-data"].items() for name in names}

    def is_shipped(file: str) -> bool:
        package = file.rpartition("/")[0].replace("/", ".")
        is_data = any(fnmatch.fnmatch(file, each) for each in data)
        return is_data or (file.endswith(".py") and any(fnmatch.fnmatch(package, each) for each in packages))

    lost = [file for file in sorted(files_of(module)) if not is_shipped(file)]
    assert lost == [], "name them under package-data of its pyproject.toml"
    assert f"{module}/py.typed" in files_of(module)


def test_the_toolchain_takes_the_runtime_of_its_own_version() -> None:
    needed = project("compiler")["project"]["dependencies"]
    assert f"{project('runtime_lite')['project']['name']}=={runtime_lite.__version__}" in needed
    for module in PROJECTS:
        assert project(module)["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "runtime_lite.__version__"}


def test_the_runtime_needs_numpy_and_takes_every_version_that_is_tested() -> None:
    metadata = project("runtime_lite")["project"]
    assert [Requirement(text).name for text in metadata["dependencies"]] == ["numpy"]
    pinned = {
        each.name: str(each.specifier).removeprefix("==") for each in requirements(project("compiler")["project"])
    }
    for asked in requirements(metadata):
        assert asked.specifier.contains(pinned[asked.name]), f"{asked} is tested with {pinned[asked.name]}"


@pytest.mark.parametrize("module", PROJECTS)
def test_commands_are_functions_and_bear_a_name_of_ours(module: str) -> None:
    for command, reference in project(module)["project"]["scripts"].items():
        assert command.startswith("slipway-"), "the command slipway is that of another's package"
        name, _, function = reference.partition(":")
        assert callable(getattr(importlib.import_module(name), function))


# The wheels themselves


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """As `make wheels` builds them, by module."""
    folder = tmp_path_factory.mktemp("wheels")
    made = subprocess.run(["make", "wheels", f"WHEELS={folder}"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    names = {module: project(module)["project"]["name"].replace("-", "_") for module in PROJECTS}
    found = {module: list(folder.glob(f"{name}-*.whl")) for module, name in names.items()}
    assert sorted(folder.iterdir()) == sorted(path for paths in found.values() for path in paths)
    return {module: zipfile.ZipFile(path) for module, [path] in found.items()}


def unpacked(wheels: dict[str, zipfile.ZipFile], folder: Path, *modules: str) -> dict[str, str]:
    """The environment of a process that finds these modules as they are in their wheels, and no checkout."""
    for module in modules:
        wheels[module].extractall(folder)
    return os.environ | {"PYTHONPATH": str(folder)}


def run(code: str, folder: Path, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("module", PROJECTS)
def test_a_wheel_holds_its_module_and_nothing_else(module: str, wheels: dict[str, zipfile.ZipFile]) -> None:
    names = set(wheels[module].namelist())
    [info] = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert {name for name in names if not name.startswith(f"{info}/")} == files_of(module)
    metadata = email.message_from_bytes(wheels[module].read(f"{info}/METADATA"))
    assert metadata["Version"] == runtime_lite.__version__
    assert wheels[module].read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


ALONE = """
import sys
for absent in ("torch", "compiler", "onnx"):
    sys.modules[absent] = None
import runtime_lite
import numpy as np
with runtime_lite.Runtime() as runtime:
    model = runtime.load(sys.argv[1])
    with model.open_stream() as stream:
        graph = next(iter(model.bundle.manifest.graphs.values()))
        feeds = {each.name: np.zeros([1 if isinstance(n, str) else n for n in each.shape], each.dtype)
                 for each in graph.inputs if each.role == "data"}
        print(sorted(stream.push(feeds)), runtime_lite.__file__)
from runtime_lite.errors import FRONT_DOOR
print(FRONT_DOOR)
"""


@pytest.mark.slow
def test_the_runtime_runs_a_bundle_without_the_toolchain(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    empty, modules = tmp_path / "empty", tmp_path / "modules"
    empty.mkdir()
    bundle = write_streaming_bundle(tmp_path / "bundle")
    environment = unpacked(wheels, modules, "runtime_lite")
    outputs, command = run(ALONE, empty, environment, str(bundle)).splitlines()
    assert str(modules) in outputs
    assert command == "slipway-build", "there is no build.py to name"


@pytest.mark.slow
def test_the_toolchain_builds_without_a_checkout(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    modules, mine = tmp_path / "modules", tmp_path / "mine"
    stream_project(mine, mine)
    environment = unpacked(wheels, modules, "compiler", "runtime_lite")
    start = "import sys; from compiler.front_door import main; sys.exit(main())"
    assert "bundle: dist/" in run(start, mine, environment, "--recipe", "stream.yaml")
    assert run(start, mine, environment, "--version") == f"slipway-compiler {runtime_lite.__version__}\n"
    assert "slipway-build" in run(start, mine, environment, "--help")
