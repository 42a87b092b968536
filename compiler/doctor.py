"""Say which targets work on this machine, what is missing for the others, and which versions are installed."""

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable

from rich.markup import escape
from rich.table import Table

from compiler.targets.tensorrt.builder import probe_builder
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import Device, probe

PACKAGES_BY_TARGET: dict[str, tuple[str, ...]] = {
    "null": (),
    "onnx_static": ("onnx", "onnx-ir", "onnxruntime"),
    "tensorrt": ("onnx", "onnx-ir", "onnxruntime"),
}
"""Distributions that a build for a target needs besides those that every build needs."""

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


INSTALL_ENGINES = "pip install -e '.[tensorrt]'"
"""In Slipway's folder; as pyproject.toml pins them, CUDA bindings and TensorRT for drivers from r535 on."""

BINDINGS = {"cuda.bindings.runtime": "cuda-python", "pycuda.driver": "pycuda"}
"""Distribution by the module that we import of it."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One thing that an engine needs on its machine: what was found of it, or what is wrong and what cures it."""

    target: str
    name: str
    found: str
    cure: str = ""


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
        parts: what the engines of vendor targets need; a target without them still builds bundles, to be finished
            elsewhere.
    """

    targets: tuple[TargetState, ...]
    versions: dict[str, str | None]
    machine: str
    parts: tuple[Part, ...] = ()


def has_module(name: str) -> bool:
    """Whether a module can be imported; a folder of that name without code, as other packages leave, is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def engine_parts(
    ask_driver: Callable[[], Device] = probe,
    ask_builder: Callable[[], str] = probe_builder,
    find: Callable[[str], object] = has_module,
) -> tuple[Part, ...]:
    """What TensorRT needs on this machine, in the order in which it is needed.

    Args:
        ask_driver: the CUDA device; raises EngineAbsent.
        ask_builder: starts a builder, its version; raises EngineAbsent.
        find: whether a module is installed.
    """
    try:
        device = ask_driver()
        driver = Part("tensorrt", "driver", f"{device.name}, compute capability {device.capability}")
    except EngineAbsent as error:
        driver = Part("tensorrt", "driver", _reason(error), "install the NVIDIA driver, r535 or later")
    bindings = [name for module, name in BINDINGS.items() if find(module)]
    memory = (
        Part("tensorrt", "CUDA bindings", ", ".join(bindings))
        if bindings
        else Part("tensorrt", "CUDA bindings", "neither cuda-python nor pycuda", INSTALL_ENGINES)
    )
    is_installed = bool(find("tensorrt"))
    names = Part("tensorrt", "TensorRT bindings", "installed") if is_installed else (
        Part("tensorrt", "TensorRT bindings", "not installed", INSTALL_ENGINES)
    )  # fmt: skip
    what = "TensorRT builder and runtime"
    if driver.cure or not is_installed:
        missing = driver if driver.cure else names
        libraries = Part("tensorrt", what, f"not tried without {missing.name}", missing.cure)
    else:
        try:
            libraries = Part("tensorrt", what, f"{ask_builder()}, both start")
        except EngineAbsent as error:
            libraries = Part("tensorrt", what, _reason(error), "install the version that fits the driver")
    return driver, memory, names, libraries


def _reason(error: EngineAbsent) -> str:
    return str(error).split("; ")[0]


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
    return Diagnosis(targets, {package: version(package) for package in PACKAGES}, machine, engine_parts())


def diagnosis_tables(diagnosis: Diagnosis) -> tuple[Table, Table, Table]:
    """The diagnosis for people: targets, what their engines need, then versions."""
    targets = Table(title="Targets", title_justify="left", box=None, pad_edge=False)
    for column in ("target", "works", "engines here", "missing"):
        targets.add_column(column)
    for state in diagnosis.targets:
        needed = [part for part in diagnosis.parts if part.target == state.name]
        engines = "" if not needed else "no" if any(part.cure for part in needed) else "yes"
        targets.add_row(state.name, "no" if state.missing else "yes", engines, escape(", ".join(state.missing)))
    parts = Table(title="Engines on this machine", title_justify="left", box=None, pad_edge=False)
    for column in ("target", "needs", "found", "cure"):
        parts.add_column(column, overflow="fold")
    for part in diagnosis.parts:
        parts.add_row(*map(escape, (part.target, part.name, part.found, part.cure)))
    versions = Table(title=diagnosis.machine, title_justify="left", box=None, pad_edge=False)
    for column in ("package", "version"):
        versions.add_column(column)
    for package, version in diagnosis.versions.items():
        versions.add_row(package, version or "not installed")
    return targets, parts, versions
