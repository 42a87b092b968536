"""Writes the static graphs of `tensorrt` for TensorRT-RTX, and builds engines for the GPUs of PCs from them.

Engines are built where the builder is installed. An engine is built ahead of time, without a device, for several
compute capabilities at once; its kernels are compiled on the device that opens it. So the bundle is finished where it
is built, and run where a device is. Tried with TensorRT-RTX 1.7.1.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import onnx_ir as ir

from compiler.base.pieces import Content, write_files
from compiler.errors import Location, RecipeError, Refused
from compiler.graph.runners.session import Session, session_of
from compiler.graph.stages import Lowered, Pass
from compiler.numerics.quantization.placement import Placement
from compiler.targets.base import Built, Compiled, Emitted, Part, Target, TrialBuilder, TrialEngine
from compiler.targets.static_graphs import write_static
from compiler.targets.tensorrt import trial
from compiler.targets.tensorrt.lint import require_buildable
from compiler.targets.tensorrt.parts import rtx_parts, trial_part
from compiler.targets.tensorrt.rule import DeviceLimits
from compiler.targets.tensorrt.target import SYMMETRIC, engine_plan, for_the_builder, in_real_numbers, require_numbers
from compiler.targets.toolchain import build_plans
from compiler.targets.weights_file import WeightsFile
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors import cuda
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import Engine

FOLDER = "tensorrt_rtx"


@dataclasses.dataclass(frozen=True)
class TensorrtRtx(Target):
    """Write static graphs, `tensorrt_rtx/<graph>.build_plan.json`, and where the builder is here the engines.

    Attributes:
        compute_capabilities: of the devices that engines are for, e.g. 8.6 for the RTX 3000 series; 7.5 beside others
            may cost these speed.
        opset: the largest version of the standard operators.
        workspace_mb: device memory that kernels may use besides weights and activations.
        optimization_level: from 0, built quickly, to 5, runs fastest.
        one_engine: one engine for all numbers of rows, with a profile for each, where the graph allows it, so that they
            share weights: a copy per layout that kernels want. Otherwise an engine per combination of buckets.
    """

    name: ClassVar[str] = "tensorrt_rtx"
    pass_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "unstack_states": {"most": 0},  # each costs a call time
        "pack_states": {"most": 0},
    }
    placement: ClassVar[Placement | None] = SYMMETRIC

    compute_capabilities: tuple[str, ...] = ("8.6", "8.9", "12.0")
    opset: int = 24
    workspace_mb: int = 1024
    optimization_level: int = 3
    one_engine: bool = False

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            RecipeError: an option is wrong; the message names it.
        """
        super().__post_init__()
        wanted = tuple(self.compute_capabilities)
        object.__setattr__(self, "compute_capabilities", wanted)  # a recipe writes a list
        if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(trial.CAPABILITIES):
            raise RecipeError(
                f"compute_capabilities: expected some of {', '.join(trial.CAPABILITIES)}, each once, got "
                f"{', '.join(map(str, wanted)) or 'none'}",
                cure="change the option of the target",
            )
        require_numbers(self.opset, self.workspace_mb, self.optimization_level)

    @property
    def opens_rows(self) -> bool:
        """Whether one file may serve all numbers of rows: where there is one engine for them."""
        return self.one_engine

    def passes(self, sizes: Mapping[str, int]) -> tuple[Pass, ...]:
        """Return every target's passes, surrounded by those that the builder needs."""
        return for_the_builder(super().passes(sizes), sizes)

    def accept(self, artifacts: Sequence[Lowered]) -> None:
        """Lint the graphs for the device of the lowest compute capability.

        Raises:
            Refused: TensorRT-RTX would not build a graph as it is.
        """
        major, minor = min(tuple(map(int, each.split("."))) for each in self.compute_capabilities)
        limits = DeviceLimits((major, minor), self.opset, artifacts[0].batch_axis if self.one_engine else None)
        require_buildable((each.model for each in artifacts), limits, artifacts[0].graph)
        for each in artifacts if trial.TURING in self.compute_capabilities else ():
            _refuse_float_products(each)

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, lint and write every combination of bucket sizes, and the plan to build their engines.

        Raises:
            Refused: a dimension stays symbolic, or TensorRT-RTX would not build the graph as it is.
        """
        built = write_static(self, lowered, buckets, opens_rows=self.opens_rows, weights=weights)
        file = f"{FOLDER}/{lowered.graph}.build_plan.json"
        plan = {
            "target": self.name,
            "graph": lowered.graph,
            "builder": self.builder_plan(),
            "compute_capabilities": list(self.compute_capabilities),
            "versions": {"tensorrt_rtx": trial.VERSION, **built.versions},
            "engines": [engine_plan(artifacts) for artifacts in built.by_file],
        }
        engine = Engine("not built", self.absent() or "the build has not come to the engine", file, {}, {})
        return dataclasses.replace(built, files={**built.files, file: canonical_json(plan)}, engine=engine)

    def builder_plan(self) -> dict[str, Any]:
        """Return the builder's settings for every engine."""
        return {
            "workspace_bytes": self.workspace_mb * 2**20,
            "optimization_level": self.optimization_level,
            "profiling_verbosity": "DETAILED",
            "hardware_compatibility": "NONE",
            "flags": [],
            "cleared_flags": ["TF32"],
            "parser_flags": ["NATIVE_INSTANCENORM"],
        }

    def open(self, path: Path) -> Session:
        """Open a graph in ONNX Runtime as written, with half precision rounded by the graph's types."""
        return session_of(ir.external_data.load_to_model(ir.load(path)))

    def parts(self) -> tuple[Part, ...]:
        """Return the builder, which a build needs, and what engines need to run."""
        return rtx_parts()

    def cannot_run(self) -> str | None:
        """Return why this machine has no device for the engines, or None."""
        try:
            device = cuda.probe()
        except EngineAbsent as error:
            return str(error).partition("; ")[0]
        if device.capability in self.compute_capabilities:
            return None
        return (
            f"expected a device of compute capability {', '.join(self.compute_capabilities)}, got {device.name} of "
            f"{device.capability}"
        )

    def alternatives(self, bundle: Path) -> Mapping[str, Mapping[str, Content]]:
        """Return the graphs without their rounding to int8, in the types that are then left: half precision."""
        return in_real_numbers(bundle)

    def trial_builder(self, out: Path) -> TrialBuilder | None:
        """Return the builder of the engines that ship; None where it is missing."""

        def built(folder: Path, artifacts: Sequence[Emitted]) -> TrialEngine:
            return _built_into(out, folder, self.builder_plan(), engine_plan(artifacts), self.compute_capabilities)

        return None if trial_part(is_needed=True).cure else built

    def engine_outlook(self) -> str:
        """Return for messages what a build here does: lint graphs, build engines, and run them on a device."""
        lacking, without_device = self.absent(), self.cannot_run()
        if lacking is not None:
            return f"graphs are linted, engines are not built ({lacking}; {trial_part(is_needed=True).cure})"
        run = "run here" if without_device is None else f"not run ({without_device})"
        return f"graphs are linted, engines are built here for {', '.join(self.compute_capabilities)}, and {run}"

    def compile(self, bundle: Path, out: Path, caches: Path) -> Mapping[str, Compiled]:
        """Build an engine of every graph file that has none yet, each in a process of its own.

        Raises:
            Refused: the builder refuses a graph, crashes, or reaches a limit.
            ToolchainAbsent: the builder is not installed.
        """
        compiled = {}
        for file, plan in build_plans(bundle, FOLDER).items():
            capabilities = plan["compute_capabilities"]
            described = {
                engine["graph"]: _built_into(out, bundle, plan["builder"], engine, capabilities)
                for engine in plan["engines"]
                if not (out / engine["engine"]).exists()
            }
            files = {engine["graph"]: engine["engine"] for engine in plan["engines"]}
            built_with = {"tensorrt_rtx": trial.VERSION, "compute capabilities": ", ".join(capabilities)}
            compiled[file] = Compiled(files, built_with, described)
        return compiled


def _built_into(
    out: Path, folder: Path, plan: Mapping[str, Any], engine: Mapping[str, Any], capabilities: Sequence[str]
) -> TrialEngine:
    """Build the engine of a graph file in a folder, write it into another, and return its description."""
    described, content = trial.built_trial(folder, plan, engine, capabilities)
    write_files(out, {engine["engine"]: content})
    return described


def _refuse_float_products(lowered: Lowered) -> None:
    """Raise where a product is computed in float32, which TensorRT-RTX does not build for Turing."""
    for node in trial.float_products(lowered.model):
        raise Refused(
            f"expected no product in float32 for compute capability {trial.TURING}, for which {trial.NAME} builds "
            f"none, got {node.op_type}",
            cure=f"compute it in half precision (lower_precision), or take {trial.TURING} out of compute_capabilities",
            place=Location(stage=FOLDER, graph=lowered.graph, node=str(node.name), op=node.op_type),
        )
