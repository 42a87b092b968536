"""Say which targets work on this machine, what is missing for the others, and which versions are installed."""

import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Callable

from rich.table import Table

PACKAGES_BY_TARGET: dict[str, tuple[str, ...]] = {
    "null": (),
    "onnx_static": ("onnx", "onnx-ir", "onnxruntime"),
}
"""Distributions a target needs besides those that every build needs."""

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
    """Whether a target can be built here; `missing` names the packages it lacks."""

    name: str
    missing: tuple[str, ...]


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
    """Look at this machine.

    Args:
        version_of: version of an installed package; raises PackageNotFoundError for others.
    """

    def version(package: str) -> str | None:
        try:
            return version_of(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    targets = tuple(
        TargetState(name, tuple(package for package in packages if version(package) is None))
        for name, packages in sorted(PACKAGES_BY_TARGET.items())
    )
    machine = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    )
    return Diagnosis(targets, {package: version(package) for package in PACKAGES}, machine)


def diagnosis_tables(diagnosis: Diagnosis) -> tuple[Table, Table]:
    """The diagnosis for people: targets, then versions."""
    targets = Table(title="Targets", title_justify="left", box=None, pad_edge=False)
    for column in ("target", "works", "missing"):
        targets.add_column(column)
    for state in diagnosis.targets:
        targets.add_row(state.name, "no" if state.missing else "yes", ", ".join(state.missing))
    versions = Table(title=diagnosis.machine, title_justify="left", box=None, pad_edge=False)
    for column in ("package", "version"):
        versions.add_column(column)
    for package, version in diagnosis.versions.items():
        versions.add_row(package, version or "not installed")
    return targets, versions
