"""Writes a strongly typed ONNX graph per combination of buckets, with the settings and scripts that build its engine.

The graph is the precision plan and is what is verified; the engine is built from it on the machine that runs it, during
the build where that machine is this one, else later by `build.py finish` or by the script in the bundle. It runs at the
fixed shapes of the buckets, as it is the graph at these sizes whose padding was proved. There is an engine per
combination of buckets or, with `one_engine`, one with a profile per number of rows.
"""

import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import onnx_ir as ir

from compiler.base.pieces import Content
from compiler.calib.quantized_pairs import without_pairs
from compiler.errors import RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, session_of, with_constants_dequantized
from compiler.graph.stages import Lowered, Pass
from compiler.numerics.quantization.placement import Placement
from compiler.passes.eliminate_outputs import EliminateOutputs
from compiler.passes.legalize_scores import LegalizeScores
from compiler.passes.lower_clip import LowerClip
from compiler.passes.lower_elu import LowerElu
from compiler.passes.lower_flags import LowerFlags
from compiler.passes.lower_quantized_convolutions import LowerQuantizedConvolutions
from compiler.passes.split_constants import SplitConstants
from compiler.targets.base import Built, Compiled, Emitted, Part, Target, TrialBuilder, TrialEngine
from compiler.targets.static_graphs import write_static
from compiler.targets.tensorrt import builder, compile_engines, trial, verify
from compiler.targets.tensorrt.builder import number_of
from compiler.targets.tensorrt.lint import require_buildable
from compiler.targets.tensorrt.operators import needed_version
from compiler.targets.tensorrt.parts import parts_here, trial_part
from compiler.targets.tensorrt.rule import DeviceLimits
from compiler.targets.toolchain import Toolchain
from compiler.targets.weights_file import WeightsFile
from runtime_lite import errors
from runtime_lite.executors import cuda, device_run, tensorrt_engine
from runtime_lite.executors.executor import Executor, make_trusted_executor
from runtime_lite.format import atomic_file
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import Engine, bucket_name
from runtime_lite.format.reader import Bundle, read_bundle

FOLDER = "tensorrt"

SYMMETRIC = Placement("tensorrt", signed=True, rounds_convolution_outputs=False, splits_bias=False, least_channels=16)
"""Q/DQ pairs in front of weighted operators only, bias in float. Source: TensorRT's parser and the vendor's guide."""

COMPATIBILITIES = ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY")

MINIMUM_CAPABILITY, AMPERE = (7, 5), (8, 0)

COMPILE_S = 4 * 3600.0
"""A builder that tries every kernel takes minutes per engine, and a bundle holds dozens."""

SCRIPTS = {
    "build_engine.py": builder,
    "verify_t4.py": verify,
    "slipway_atomic_file.py": atomic_file,
    "slipway_cuda.py": cuda,
    "slipway_device_run.py": device_run,
    "slipway_errors.py": errors,
    "slipway_tensorrt_engine.py": tensorrt_engine,
}
"""Files of ours that ship inside bundles, so that they run beside each other without the compiler and the runtime."""

STANDALONE = (
    (re.compile(r"^from runtime_lite\.(?:\w+\.)*(\w+) import", re.MULTILINE), r"from slipway_\1 import"),
    (re.compile(r"^from compiler\.targets\.tensorrt\.builder import", re.MULTILINE), "from build_engine import"),
)


@dataclasses.dataclass(frozen=True)
class Tensorrt(Target):
    """Write static graphs, `tensorrt/<graph>.build_plan.json`, scripts, and the same commands for trtexec as text.

    Attributes:
        compute_capability: of the device; a T4 has 7.5.
        opset: the largest version of the standard operators that the installed parser documents.
        workspace_mb: device memory that kernels may use besides weights and activations.
        optimization_level: from 0, built quickly, to 5, runs fastest.
        version_compatible: engines that later versions of TensorRT open; they carry code, load only trusted ones.
        exclude_lean_runtime: leave that code out; the machine then needs the package of the lean runtime.
        hardware_compatibility: NONE, for the kind of device that builds the engine; SAME_COMPUTE_CAPABILITY, or
            AMPERE_PLUS from compute capability 8.0 on, for others as well, which costs speed.
        refit: engines whose weights can be exchanged.
        one_engine: one engine for all numbers of rows, with a profile for each, where the graph allows it, so that they
            share weights: a copy per layout that kernels want. Otherwise an engine per combination of buckets.
        try_builder: build engines with TensorRT-RTX where it is installed, to see that the graphs are taken and
            computed in the types that they state.
    """

    name: ClassVar[str] = "tensorrt"
    pass_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "unstack_states": {"most": 0},  # each costs a call time
        "pack_states": {"most": 0},
    }
    placement: ClassVar[Placement | None] = SYMMETRIC
    trial: ClassVar[str] = f"{FOLDER}/verify_t4.py"

    compute_capability: str = "7.5"
    opset: int = 24
    workspace_mb: int = 1024
    optimization_level: int = 3
    version_compatible: bool = False
    exclude_lean_runtime: bool = False
    hardware_compatibility: str = "NONE"
    refit: bool = False
    one_engine: bool = False
    try_builder: bool = True

    def __post_init__(self) -> None:
        """Check the options against each other.

        Raises:
            RecipeError: an option is wrong; the message names it.
        """
        super().__post_init__()
        if not re.fullmatch(r"\d{1,2}\.\d", self.compute_capability) or self._capability < MINIMUM_CAPABILITY:
            raise _wrong("compute_capability", 'a text such as "7.5", at least 7.5', self.compute_capability)
        require_numbers(self.opset, self.workspace_mb, self.optimization_level)
        if self.hardware_compatibility not in COMPATIBILITIES:
            raise _wrong("hardware_compatibility", f"one of {', '.join(COMPATIBILITIES)}", self.hardware_compatibility)
        if self.hardware_compatibility == "AMPERE_PLUS" and self._capability < AMPERE:
            raise _wrong("hardware_compatibility", "SAME_COMPUTE_CAPABILITY or NONE before 8.0", "AMPERE_PLUS")
        if self.exclude_lean_runtime and not self.version_compatible:
            raise _wrong("exclude_lean_runtime", "false without version_compatible", True)

    @property
    def _capability(self) -> tuple[int, int]:
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)

    @property
    def opens_rows(self) -> bool:
        """Whether one file may serve all numbers of rows: where there is one engine for them."""
        return self.one_engine

    def passes(self, sizes: Mapping[str, int]) -> tuple[Pass, ...]:
        """Return every target's passes, surrounded by those that the builder needs; masks come first."""
        return for_the_builder(super().passes(sizes), sizes)

    def accept(self, artifacts: Sequence[Lowered]) -> None:
        """Lint the graphs.

        Raises:
            Refused: TensorRT would not build a graph as it is; all reasons at once.
        """
        limits = DeviceLimits(self._capability, self.opset, artifacts[0].batch_axis if self.one_engine else None)
        require_buildable((each.model for each in artifacts), limits, artifacts[0].graph)

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, lint and write every combination of bucket sizes, and the plan to build them.

        Raises:
            Refused: a dimension stays symbolic, or TensorRT would not build the graph as it is; all reasons at once.
        """
        built = write_static(self, lowered, buckets, opens_rows=self.opens_rows, weights=weights)
        plan_file = f"{FOLDER}/{lowered.graph}.build_plan.json"
        needed = max((needed_version(emitted.lowered.model) for emitted in built.artifacts), key=number_of)
        plan = self._plan(lowered.graph, built, needed)
        files = {
            plan_file: canonical_json(plan),
            f"{FOLDER}/{lowered.graph}.trtexec.txt": self._trtexec(plan).encode(),
            **{f"{FOLDER}/{name}": standalone(module) for name, module in SCRIPTS.items()},
        }
        reason = self.absent() or "the build has not come to the engine"
        engine = Engine("not built", reason, plan_file, {}, {})
        return dataclasses.replace(built, files={**built.files, **files}, engine=engine)

    def open(self, path: Path) -> Session:
        """Open a graph in ONNX Runtime as written, with half precision rounded by the graph's types."""
        return session_of(ir.external_data.load_to_model(ir.load(path)))

    def parts(self) -> tuple[Part, ...]:
        """Return the driver, its bindings and the library, which is started, as parts."""
        return parts_here()

    def absent(self) -> str | None:
        """Return why no engine can be built on this machine for the device of the options, or None."""
        lacking = super().absent()
        if lacking is not None:
            return lacking
        device = cuda.probe()
        if device.capability != self.compute_capability:
            return (
                f"expected a device of compute capability {self.compute_capability}, got {device.name} of "
                f"{device.capability}"
            )
        return None

    def trial_builder(self, out: Path) -> TrialBuilder | None:
        """Return TensorRT-RTX as the trial builder, where it is installed; its engines do not ship."""
        return None if self.trial_absent() else self._tried

    def _tried(self, folder: Path, artifacts: Sequence[Emitted]) -> TrialEngine:
        """Build a graph file with TensorRT-RTX; flags that need a device or other libraries are left out."""
        capability, why = trial.stand_in(self.compute_capability, artifacts[0].lowered.model)
        plan = {**self.builder_plan(), "flags": [], "hardware_compatibility": "NONE"}
        try:
            return trial.built_trial(folder, plan, engine_plan(artifacts), [capability], why)[0]
        except Refused as error:
            alone = f"where the limit is one of {trial.NAME} alone, set try_builder: false in the target"
            raise Refused(error.message, cure=f"{error.cure}; {alone}") from None

    def trial_absent(self) -> str:
        """Return why TensorRT-RTX does not build: it is disabled, or not installed in the pinned version."""
        if not self.try_builder:
            return "try_builder: false"
        part = trial_part(is_needed=False)
        return f"{part.found}; {part.cure}" if part.cure else ""

    def engine_outlook(self) -> str:
        """Return for messages what a build here does: lint graphs, try TensorRT-RTX, and run engines on a device."""
        lacking, unseen = self.absent(), self.trial_absent()
        if lacking is None:
            return "graphs are linted, engines are built and run here"
        built = f"no builder sees them ({unseen})" if unseen else f"{trial.NAME} {trial.VERSION} builds them"
        return f"graphs are linted, {built}, no engine is run ({lacking})"

    def compile(self, bundle: Path, out: Path, caches: Path) -> Mapping[str, Compiled]:
        """Build the engines with the shipped script, in a process that the library may end."""
        request = {
            "builder": builder.__file__,
            "path": [str(Path(each).resolve()) for each in sys.path],
            "bundle": str(bundle.resolve()),
            "timing-cache": str(caches.resolve()),
        }
        Toolchain(Path(sys.executable), Path(compile_engines.__file__), COMPILE_S).run(request, out)
        made = json.loads((out / "built.json").read_text(encoding="utf-8"))
        return {plan: Compiled(**each) for plan, each in made.items()}

    def alternatives(self, bundle: Path) -> Mapping[str, Mapping[str, Content]]:
        """Return the graphs without their rounding to int8, in the types that are then left: half precision."""
        return in_real_numbers(bundle)

    def executor(self, bundle: Bundle, name: str, threads: int) -> Executor:
        """Return the device's executor, which trusts the host code of engines built here."""
        return make_trusted_executor(bundle, name, threads)

    def _flags(self) -> list[str]:
        wanted = {
            "EXCLUDE_LEAN_RUNTIME": self.exclude_lean_runtime,
            "REFIT": self.refit,
            "VERSION_COMPATIBLE": self.version_compatible,
        }
        return [name for name, is_set in wanted.items() if is_set]

    def _plan(self, graph: str, built: Built, needed: str) -> dict[str, Any]:
        """Return the build plan, with flags by name, because their numbers differ between versions."""
        return {
            "target": self.name,
            "graph": graph,
            "device": {"compute_capability": self.compute_capability},
            "network": {"flags": ["STRONGLY_TYPED"]},
            "builder": self.builder_plan(),
            "versions": {"tensorrt": needed, **built.versions},
            "timing_cache_key": ["TensorRT version", "device name", "driver version"],
            "engines": [engine_plan(artifacts) for artifacts in built.by_file],
        }

    def builder_plan(self) -> dict[str, Any]:
        """Return the builder's settings for every engine."""
        return {
            "workspace_bytes": self.workspace_mb * 2**20,
            "optimization_level": self.optimization_level,
            "profiling_verbosity": "DETAILED",
            "hardware_compatibility": self.hardware_compatibility,
            "flags": self._flags(),
            "cleared_flags": ["TF32"],
            "parser_flags": ["NATIVE_INSTANCENORM"],
        }

    def _trtexec(self, plan: Mapping[str, Any]) -> str:
        """Return the same builds as a script for the vendor's tool."""
        lines = [
            f"# sh {FOLDER}/{plan['graph']}.trtexec.txt: needs TensorRT {plan['versions']['tensorrt']} or later.",
            "# Engines go into engines/ of the current folder, graphs come from the bundle around this file.",
            "set -e",
            'bundle=$(cd "$(dirname "$0")/.." && pwd)',
            "mkdir -p engines",
        ]
        for engine in plan["engines"]:
            command = [
                "--stronglyTyped",
                f"--saveEngine={engine['engine']}",
                f"--memPoolSize=workspace:{self.workspace_mb}",
                f"--builderOptimizationLevel={self.optimization_level}",
                "--noTF32",
                "--profilingVerbosity=detailed",
                "--timingCacheFile=timing.cache",
                "--skipInference",
            ]
            if self.hardware_compatibility != "NONE":
                names = {"AMPERE_PLUS": "ampere+", "SAME_COMPUTE_CAPABILITY": "sameComputeCapability"}
                command.append(f"--hardwareCompatibilityLevel={names[self.hardware_compatibility]}")
            switches = {
                "VERSION_COMPATIBLE": "--versionCompatible",
                "EXCLUDE_LEAN_RUNTIME": "--excludeLeanRuntime",
                "REFIT": "--refit",
            }
            command += [switches[flag] for flag in self._flags()]
            command += _profile_options(engine["profiles"])
            lines.append(f'trtexec --onnx="$bundle"/{shlex.quote(engine["graph"])} {shlex.join(command)}')
        return "\n".join(lines) + "\n"


def in_real_numbers(bundle: Path) -> Mapping[str, Mapping[str, Content]]:
    """Return the quantised graph files of a bundle without their Q/DQ pairs, as an alternative; none without any.

    Weights stay as they were rounded, and are stored as what they stand for.
    """
    with read_bundle(bundle) as opened:
        files = sorted({each.file for graph in opened.manifest.graphs.values() for each in graph.artifacts})
    found: dict[str, Content] = {}
    for file in files:
        model = ir.load(bundle / file)
        if any(graphs.is_op(node, "QuantizeLinear") for node in model.graph):
            plain = with_constants_dequantized(without_pairs(ir.external_data.load_to_model(model)))
            found[file] = ir.serde.serialize_model(plain).SerializeToString()
    return {"real numbers": found} if found else {}


def _profile_options(profiles: Sequence[Mapping[str, Sequence[Sequence[int]]]]) -> list[str]:
    """Return the options of the vendor's tool for several profiles; an engine of fixed shapes needs none."""
    options = []
    for number, profile in enumerate(profiles if len(profiles) > 1 else ()):
        options.append(f"--profile={number}")
        for position, name in enumerate(("minShapes", "optShapes", "maxShapes")):
            shapes = (f"{tensor}:{'x'.join(map(str, of[position]))}" for tensor, of in profile.items())
            options.append(f"--{name}={','.join(shapes)}")
    return options


def engine_plan(artifacts: Sequence[Emitted]) -> dict[str, Any]:
    """Return the plan of one engine: its graph, the files that it reads, and a profile per bucket.

    Args:
        artifacts: the artifacts that share one graph file, which differ in their rows.
    """
    first = artifacts[0]
    return {
        "buckets": [bucket_name(emitted.sizes) for emitted in artifacts],
        "graph": first.file,
        "reads": list(first.files),
        "engine": f"engines/{Path(first.file).stem}.plan",
        "profiles": [_profile(emitted) for emitted in artifacts],
    }


def _profile(emitted: Emitted) -> dict[str, list[list[int]]]:
    """Return the smallest, the usual and the largest shape of each input, which are one."""
    shapes = {
        str(value.name): [
            dim if isinstance(dim, int) else emitted.sizes[str(dim)] for dim in graphs.dims_of(value) or ()
        ]
        for value in emitted.lowered.model.graph.inputs
    }
    return {name: [shape, shape, shape] for name, shape in shapes.items()}


def standalone(module: Any) -> bytes:
    """Return the source of one of our modules as it ships, with imports from beside itself."""
    text = Path(module.__file__).read_text(encoding="utf-8")
    for pattern, replacement in STANDALONE:
        text = pattern.sub(replacement, text)
    return text.encode()


def for_the_builder(plain: Sequence[Pass], sizes: Mapping[str, int]) -> tuple[Pass, ...]:
    """Return every target's passes, surrounded by those that NVIDIA's builders need."""
    written = (LowerClip(), LowerElu(), LowerFlags(), LowerQuantizedConvolutions())
    return (LegalizeScores(tuple(sizes.items())), *plain, EliminateOutputs(), *written, SplitConstants())


def require_numbers(opset: int, workspace_mb: int, optimization_level: int) -> None:
    """Check the options that are numbers.

    Raises:
        RecipeError: an option is wrong; the message names it.
    """
    if not 9 <= opset <= 25:
        raise _wrong("opset", "from 9 to 25", opset)
    if not 1 <= workspace_mb <= 2**20:
        raise _wrong("workspace_mb", "from 1 to 1048576", workspace_mb)
    if not 0 <= optimization_level <= 5:
        raise _wrong("optimization_level", "from 0 to 5", optimization_level)


def _wrong(option: str, expected: str, got: object) -> RecipeError:
    return RecipeError(f"{option}: expected {expected}, got {got!r}", cure="change the option of the target")
