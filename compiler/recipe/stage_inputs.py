"""Defines the inputs of each build stage as a frozen record, from which the stage's cache key is computed.

A stage has its record in reach and no recipe, so it cannot depend on what its key lacks. Where a stage looks at a part
of the graph's recipe only, its record holds the recipe reduced to that part, and the stage is given the reduced one.

What code named in a recipe reads while it runs is no input that can be declared: see `cache/read_tracer.py`.
"""

import dataclasses
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from compiler.base.cache.dependencies import code_digest, installed_packages, portable
from compiler.base.cache.store import stage_key
from compiler.base.cache.tool_versions import tool_versions
from compiler.errors import InternalError
from compiler.recipe.gates import ParityGate, TaskGate
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import PassSpec, Source
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.record import Feeds

KERNEL_VARIABLES = (
    "ATEN_",
    "CUDA_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "NVIDIA_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "ORT_",
    "PYTORCH_",
    "TORCH_",
)
"""Environment variables, by their beginnings, that libraries read by themselves and that choose kernels."""

CPU_LINES = ("model name", "flags", "Features", "CPU implementer", "CPU part")


EXAMPLE_FRAMES = 24
"""Frames of a cache that a model is captured with, and some more for each other axis; longer windows change nothing."""


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What every stage follows from.

    Attributes:
        code: hash of Slipway's own code.
        tools: versions of the tools that a bundle is made with.
        packages: every installed package with its version.
        machine: what numbers and times are computed on, and how libraries are told to use it.
        folder: the recipe's folder, in which its modules are found.
    """

    code: str
    tools: tuple[tuple[str, str], ...]
    packages: tuple[str, ...]
    machine: tuple[str, ...]
    folder: str


@dataclasses.dataclass(frozen=True)
class DataInputs:
    """Inputs of drawing feeds.

    Attributes:
        surroundings: of the build.
        graph: its name.
        purpose: `verification`, `calibration` or `development`.
        feeds: the generator.
        shortest: chunks that the longest stream must have.
        spec: the graph's inputs and axes, which feeds must fit.
        files: hashes of the files that the recipe names.
    """

    surroundings: Surroundings
    graph: str
    purpose: str
    feeds: Feeds
    shortest: int
    spec: Graph
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class DistillationInputs:
    """Inputs of changing a checkpoint so that heads share keys and values.

    Attributes:
        surroundings: of the build.
        graph: its name.
        spec: as far as capture looks at it, `share_heads` included.
        files: hashes of checkpoints and files that the recipe names.
        distillation: digest of the feeds.
    """

    surroundings: Surroundings
    graph: str
    spec: Graph
    files: tuple[str, ...]
    distillation: str


@dataclasses.dataclass(frozen=True)
class CaptureInputs:
    """Inputs of capturing a graph.

    Attributes:
        surroundings: of the build.
        graph: its name.
        spec: source, inputs, outputs, and of axes what capture looks at.
        files: hashes of checkpoints, ONNX files, their weights, and files that the recipe names.
    """

    surroundings: Surroundings
    graph: str
    spec: Graph
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LoweringInputs:
    """Inputs of all passes of a graph.

    Attributes:
        surroundings: of the build.
        graph: its name.
        spec: without passes and without sizes of buckets.
        gate: the parity gate, which the graph is held to after every pass.
        task: what passes measure the task with, where there are calibration data.
        task_files: hashes of the files that the recipe names for it.
        captured: digest of the captured graphs and of the module that the factory returned.
        files: those of capture.
        verification: digest of the feeds.
        calibration: likewise, or empty.
        development: likewise.
    """

    surroundings: Surroundings
    graph: str
    spec: Graph
    gate: ParityGate
    task: TaskGate | None
    task_files: tuple[str, ...]
    captured: str
    files: tuple[str, ...]
    verification: str
    calibration: str
    development: str


@dataclasses.dataclass(frozen=True)
class PassInputs:
    """Inputs of one pass: the key of the graph before it, and its options in the recipe."""

    before: str
    spec: PassSpec


@dataclasses.dataclass(frozen=True)
class TargetInputs:
    """Inputs of a target: the key of the last pass, the target with its options, and the sizes to build for."""

    before: str
    target: str
    options: str
    buckets: Mapping[str, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class SearchInputs:
    """Inputs of a search for forms: the key of the last pass, the target with its options, and the sizes to measure."""

    before: str
    target: str
    options: str
    buckets: Mapping[str, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class BundleInputs:
    """Inputs of the gates on what ships, and of the bundle.

    Attributes:
        surroundings: of the build.
        recipe: the whole effective recipe, which the bundle holds.
        graphs: key of each graph's artefacts.
        checkpoints: hashes of the files the graphs come from, by the names that the bundle gives them.
        files: hashes of the files that the recipe names for data and task.
        absent: why the target's toolchain is not here, or empty.
        toolchain: what was found of its parts, with their versions: gates run what they made.
    """

    surroundings: Surroundings
    recipe: str
    graphs: Mapping[str, str]
    checkpoints: Mapping[str, str]
    files: tuple[str, ...]
    absent: str
    toolchain: tuple[str, ...]


def key_of(inputs: Any) -> str:
    """Return the cache key of a stage: a hash over the class and all fields of its inputs."""
    return stage_key(type(inputs).__name__, json.dumps(_plain(inputs), allow_nan=False))


def surroundings_of(loaded: LoadedRecipe) -> Surroundings:
    """Return the surroundings of a build: code, tools, packages, machine and folder; computed for every build."""
    folder = portable(str(loaded.path.absolute().parent))
    return Surroundings(code_digest(), tuple(sorted(tool_versions().items())), installed_packages(), _machine(), folder)


def for_capture(spec: Graph) -> Graph:
    """Return what capture reads of a graph's recipe: without long windows, names of inputs and passes."""
    axes = {
        name: axis.model_copy(
            update={
                "window": None if axis.window is None else min(axis.window, EXAMPLE_FRAMES),
                "length_input": "length" if name in spec.padded else None,
                "mask_input": None,
                "buckets": axis.buckets
                if axis.buckets is None
                else (axis.buckets[-1:] if name in spec.padded else (1,)),
            }
        )
        for name, axis in spec.axes.items()
    }
    return spec.model_copy(update={"axes": axes, "passes": (), "flush": {}, "flush_values": {}})


def for_data(spec: Graph) -> Graph:
    """Return what data generators read of a graph's recipe: inputs and axes."""
    fed = spec.without_constants
    return for_capture(fed).model_copy(update={"source": Source.model_construct(), "first_call": None, "outputs": ()})


def for_lowering(spec: Graph) -> Graph:
    """Return what passes read of a graph's recipe: without the buckets and the passes.

    The largest bucket of a padded axis with states is kept: it is their number of slots.
    """
    axes = {
        name: axis.model_copy(update={"buckets": axis.buckets and (axis.buckets[-1:] if name in spec.held else (1,))})
        for name, axis in spec.axes.items()
    }
    fed = spec.without_constants
    return fed.model_copy(update={"axes": axes, "passes": (), "flush": {}, "flush_values": {}})


def task_for_lowering(gate: TaskGate | None) -> TaskGate | None:
    """Return what passes read of the task gate: the metric without its limits."""
    return None if gate is None else gate.model_copy(update={"max_increase": 0.0, "identical": False, "graph": None})


def _machine() -> tuple[str, ...]:
    """Return the processor with its features, and the variables that make libraries choose kernels."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    cpu = sorted({line for line in lines if line.startswith(CPU_LINES)})
    told = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(KERNEL_VARIABLES))
    return (platform.system(), platform.machine(), *cpu, *told)


def _plain(value: Any) -> Any:
    """Return a record as JSON data; mappings become lists of pairs, since their order counts."""
    if isinstance(value, pydantic.BaseModel):
        return {name: _plain(child) for name, child in value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return [[key, _plain(child)] for key, child in value.items()]
    if isinstance(value, tuple | list):
        return [_plain(child) for child in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise InternalError(f"expected a value that a key can be made of, got {type(value).__name__}")
