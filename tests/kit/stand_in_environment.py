"""Environments of toolchains that take no download: a wheel of a few bytes, or packages that stand for a vendor's."""

import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from compiler.targets.environment import INSTALLED, Environment

WORKER = """
import json, pathlib, sys
import vendor
request, out = json.load(sys.stdin), pathlib.Path(sys.argv[1])
assert request["task"] == "version"
(out / "version.txt").write_text(f"vendor {vendor.VERSION}")
"""


def write_wheel(folder: Path, name: str, content: str, version: str = "1.0") -> None:
    """Write a wheel of one module."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def environment_in(
    folder: Path, lock: str = "vendor==1.0\nhelper_of_vendor==1.0\n", worker: str = WORKER
) -> Environment:
    """Return the record of a vendor's environment, with lock file and worker in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.lock").write_text(f"# exact\n{lock}")
    (folder / "worker.py").write_text(worker)
    return Environment(
        "vendor",
        f"{sys.version_info.major}.{sys.version_info.minor}",
        folder / "requirements.lock",
        folder / "worker.py",
        "terms of the vendor",
        3,
        7,
        "compiles nothing",
    )


def stand_in_for(environment: Environment, packages: Path) -> None:
    """Make an environment whose packages are those of this one and, before them, those of a folder.

    Args:
        environment: what is made, in its place.
        packages: folder of modules that stand for the vendor's.
    """
    venv.create(environment.folder, symlinks=True)
    (site,) = environment.folder.glob("lib/python*/site-packages")
    (site / "stand_in.pth").write_text(f"{packages.resolve()}\n{sysconfig.get_path('purelib')}\n")
    (environment.folder / INSTALLED).write_text(environment.lock.read_text(encoding="utf-8"))


def folder_with_stand_in(environment: Environment, packages: str, factory: pytest.TempPathFactory) -> Path:
    """Return a folder of environments with one that stands for a vendor's.

    Args:
        environment: what is made.
        packages: folder of this kit with modules that stand for the vendor's.
        factory: makes the folder.
    """
    folder = factory.mktemp("toolchains")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_TOOLCHAINS", str(folder))
        stand_in_for(environment, Path(__file__).parent / packages)
    return folder
