"""Reports which targets work on this machine, what the other targets lack, and which versions are installed.

It also installs a vendor's toolchain, on demand.
"""

import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Callable

from rich.markup import escape
from rich.table import Table

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.targets import TARGETS
from compiler.targets.base import Part, missing
from compiler.targets.environment import Environment
from compiler.targets.install import Tell, install

PACKAGES = (
    "torch",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "onnx-shape-inference",
    "onnxruntime",
    "numpy",
    "sympy",
    "safetensors",
)
"""Distributions whose versions change what a build makes."""


@dataclasses.dataclass(frozen=True)
class TargetState:
    """A target on this machine.

    Attributes:
        name: of the target.
        missing: packages that a build for it lacks.
        parts: the parts that its vendor's engines need; without them it still builds bundles, to be finished elsewhere.
    """

    name: str
    missing: tuple[str, ...]
    parts: tuple[Part, ...] = ()


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The targets and versions that a build would find on this machine.

    Attributes:
        targets: every target, in the order of its name.
        versions: version by package, None where it is not installed.
        machine: one line about the machine.
        toolchains: environments of vendors' toolchains, whether they are installed or not.
    """

    targets: tuple[TargetState, ...]
    versions: dict[str, str | None]
    machine: str
    toolchains: tuple[Environment, ...] = ()


def environments() -> dict[str, Environment]:
    """Return the environments of vendors' toolchains by name."""
    found = (kind.environment for _, kind in sorted(TARGETS.items()))
    return {each.name: each for each in found if each is not None}


def install_toolchain(name: str, tell: Tell) -> None:
    """Install a vendor's toolchain in an environment of its own.

    Args:
        name: name of the environment.
        tell: shows a line to the user: licence and size first, then what is done.

    Raises:
        RecipeError: there is no toolchain of that name.
        ToolchainAbsent: it cannot be installed on this machine.
        OSError: the disk is full, or the folder is not writable.
    """
    known = environments()
    if name not in known:
        raise RecipeError(
            f"doctor --install: expected the name of a toolchain, got {name!r}", cure=did_you_mean(name, known)
        )
    install(known[name], tell)


def diagnose(version_of: Callable[[str], str] = importlib.metadata.version) -> Diagnosis:
    """Find out which targets work on this machine, and which packages are missing.

    Args:
        version_of: returns the version of an installed package, or raises PackageNotFoundError.
    """

    def version(package: str) -> str | None:
        try:
            return version_of(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    targets = tuple(
        TargetState(name, tuple(package for package in kind.packages if version(package) is None), kind().parts())
        for name, kind in sorted(TARGETS.items())
    )
    machine = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    )
    versions = {package: version(package) for package in PACKAGES}
    return Diagnosis(targets, versions, machine, tuple(environments().values()))


def diagnosis_tables(diagnosis: Diagnosis) -> tuple[Table, Table, Table, Table]:
    """Return the diagnosis as tables: targets, requirements of their engines, toolchains, and versions."""
    targets = Table(title="Targets", title_justify="left", box=None, pad_edge=False)
    for column in ("target", "works", "runs here", "missing"):
        targets.add_column(column)
    for state in diagnosis.targets:
        engines = "" if not state.parts else "yes" if missing(state.parts) is None else "no"
        targets.add_row(state.name, "no" if state.missing else "yes", engines, escape(", ".join(state.missing)))
    parts = Table(title="Engines on this machine", title_justify="left", box=None, pad_edge=False)
    for column in ("target", "needs", "found", "cure"):
        parts.add_column(column, overflow="fold")
    for state in diagnosis.targets:
        for part in state.parts:
            parts.add_row(*map(escape, (state.name, part.name, part.found, part.cure)))
    toolchains = Table(title="Toolchains in environments of their own", title_justify="left", box=None, pad_edge=False)
    for column in ("name", "installed", "version", "licence", "size", "on this machine it"):
        toolchains.add_column(column, overflow="fold")
    for each in diagnosis.toolchains:
        is_here = f"no: {each.install}" if each.fault() else "yes"
        toolchains.add_row(*map(escape, (each.name, is_here, each.version, each.licence, each.size, each.verifies)))
    versions = Table(title=diagnosis.machine, title_justify="left", box=None, pad_edge=False)
    for column in ("package", "version"):
        versions.add_column(column)
    for package, version in diagnosis.versions.items():
        versions.add_row(package, version or "not installed")
    return targets, parts, toolchains, versions
