"""Reports which targets work on this machine, what is missing for the others, and which versions are installed."""

import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Callable

from rich.markup import escape
from rich.table import Table

from compiler.targets import TARGETS
from compiler.targets.base import Part, missing

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
        parts: what its vendor's engines need; without them it still builds bundles, to be finished elsewhere.
    """

    name: str
    missing: tuple[str, ...]
    parts: tuple[Part, ...] = ()


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What a build would find on this machine.

    Attributes:
        targets: every target, in the order of its name.
        versions: version by package, None where it is not installed.
        machine: one line about the machine.
    """

    targets: tuple[TargetState, ...]
    versions: dict[str, str | None]
    machine: str


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
    return Diagnosis(targets, {package: version(package) for package in PACKAGES}, machine)


def diagnosis_tables(diagnosis: Diagnosis) -> tuple[Table, Table, Table]:
    """Return the diagnosis as tables: targets, requirements of their engines, and versions."""
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
    versions = Table(title=diagnosis.machine, title_justify="left", box=None, pad_edge=False)
    for column in ("package", "version"):
        versions.add_column(column)
    for package, version in diagnosis.versions.items():
        versions.add_row(package, version or "not installed")
    return targets, parts, versions
