"""Compiles every graph file for an Arm Ethos-U NPU, with the vendor's tools, to a TOSA graph and a command stream.

The graphs are static and in float32, as everywhere. What follows from lengths and integers alone runs on the host; the
rest is quantised by the vendor's quantiser on a rollout of the calibration data, and lowered to one TOSA graph, which
the vendor's reference model executes. Vela compiles that graph to the command stream of the device; nothing here
executes it. Tried with executorch 1.5.1, tosa-tools 2026.8.0 and ethos-u-vela 5.2.0.
"""

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import onnx_ir as ir

from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, open_session
from compiler.graph.stages import Lowered
from compiler.targets.base import CALL_BYTES, Built, Compiled, Emitted, Target
from compiler.targets.environment import Environment
from compiler.targets.ethos_u.accelerators import Family, family_of
from compiler.targets.ethos_u.calibration import record
from compiler.targets.ethos_u.environment import ENVIRONMENT
from compiler.targets.ethos_u.host_side import Sides
from compiler.targets.ethos_u.lint import lengths_of, require_taken, sides_of, sides_of_model
from compiler.targets.ethos_u.masks import Limits
from compiler.targets.static_graphs import write_static
from compiler.targets.toolchain import Toolchain, answer_of, build_plans, refusal_of
from compiler.targets.weights_file import WeightsFile
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import Engine, bucket_name

FOLDER = "ethos_u"

PRECISIONS = ("int8", "int16x8")

BESIDES = ("host", "behind", "border", "commands")
"""Parts of a program that ship beside the TOSA graph; the host's may be left out."""

COMPILE_S, COMPILE_BYTES = 7200.0, 16 << 30
"""Limits of the vendor's tools for all graph files of a bundle."""


@dataclasses.dataclass(frozen=True)
class EthosU(Target):
    """Write static graphs and `ethos_u/<graph>.build_plan.json`; compile `engines/<graph>.<sizes>.tosa` with the rest.

    Attributes:
        accelerator: the NPU, by Arm's name, as `ethos-u85-256`.
        precision: of data: int8, or int16x8, 16 bits for data and 8 for weights.
        system_config: the system that Vela estimates for, by its name in the vendor's file; empty for the usual one.
        memory_mode: which memory holds what, likewise.
    """

    name: ClassVar[str] = FOLDER
    times_here: ClassVar[bool] = False
    simulated: ClassVar[str] = (
        "TOSA graph executed in the vendor's reference model, command stream compiled and not executed"
    )
    environment: ClassVar[Environment | None] = ENVIRONMENT

    accelerator: str = "ethos-u85-256"
    precision: str = "int8"
    system_config: str = ""
    memory_mode: str = ""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            RecipeError: an option is wrong; the message names it.
        """
        super().__post_init__()
        takes_int16 = self.family.takes_int16
        if self.precision not in PRECISIONS:
            raise RecipeError(
                f"precision: expected one of {', '.join(PRECISIONS)}, got {self.precision!r}",
                cure="change the option of the target",
            )
        if self.precision != "int8" and not takes_int16:
            raise RecipeError(
                f"precision: expected int8 for {self.accelerator}, which has no products of 16-bit data, got "
                f"{self.precision!r}",
                cure="change the option, or build for an Ethos-U85",
            )

    @property
    def family(self) -> Family:
        """Return what is known of the accelerator.

        Raises:
            RecipeError: there is none of this name.
        """
        return family_of(self.accelerator)

    @property
    def rounds(self) -> bool:
        """Whether the NPU rounds the float32 graphs, which it does to integers."""
        return True

    @property
    def calibrates(self) -> bool:
        """Whether calls are recorded on calibration data, which they are in every precision."""
        return True

    def unrounded(self) -> Self:
        """Return the target itself: its graph files are in float32, and opened as such."""
        return self

    def accept(self, artifacts: Sequence[Lowered]) -> None:
        """Lint the graphs of all combinations.

        Raises:
            Refused: the device cannot have what a graph computes.
        """
        for artifact in artifacts:
            require_taken(artifact)

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, lint and write every combination of bucket sizes, calls to calibrate on, and the plan.

        Raises:
            Refused: a dimension stays symbolic, there are several rows, the device cannot have what a graph computes,
                or there are no calibration data.
        """
        rows = buckets.get(str(lowered.batch_axis), (1,))
        if rows != (1,):
            raise Refused(
                f"expected graphs of one row, got buckets {list(rows)}",
                cure=f"set the buckets of axis {lowered.batch_axis} to [1]",
                place=Location(stage=self.name, graph=lowered.graph),
            )
        built = write_static(self, lowered, buckets, weights=weights)
        files = dict(built.files)
        programs = []
        for emitted in built.artifacts:
            recorded = record(emitted.lowered)
            calls = f"{FOLDER}/{Path(emitted.file).stem}.calls.npz"
            files[calls] = recorded.content
            programs.append(_program(emitted, calls, recorded.limits, sides_of(emitted.lowered, recorded.limits)))
        plan = f"{FOLDER}/{lowered.graph}.build_plan.json"
        files[plan] = canonical_json(
            {
                "target": self.name,
                "graph": lowered.graph,
                "accelerator": self.accelerator,
                "precision": self.precision,
                "system_config": self.system_config or self.family.system_config,
                "memory_mode": self.memory_mode or self.family.memory_mode,
                "programs": programs,
            }
        )
        engine = Engine("not built", self.absent() or "the build has not come to the engine", plan, {}, {})
        return dataclasses.replace(built, files=files, engine=engine)

    def open(self, path: Path) -> Session:
        """Open a graph file in ONNX Runtime, in float32: what the engine is compared with, once it is built."""
        session: Session = open_session(str(path), optimize=True)
        return session

    def engine_outlook(self) -> str:
        """Return what a build here does: graphs are lowered and executed in the reference model, or neither."""
        lacking = self.absent()
        if lacking is None:
            return f"lowered to TOSA for {self.accelerator}, executed in the vendor's reference model, compiled by Vela"
        return f"graphs are linted, no engine is built ({lacking})"

    def compile(self, bundle: Path, out: Path, caches: Path) -> Mapping[str, Compiled]:
        """Quantise, lower and compile every graph file in the vendor's environment, within limits of time and memory.

        Raises:
            Refused: the vendor's tools leave a node to the CPU, refuse a graph, crash, or reach a limit; the TOSA
                graph computes otherwise than the quantised one.
            ToolchainAbsent: the environment is not here.
        """
        plans = build_plans(bundle, FOLDER)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-sides-", dir=out.parent) as scratch:
            requests = [
                _write_sides(bundle, plan["graph"], program, Path(scratch))
                for plan in plans.values()
                for program in plan["programs"]
            ]
            request = {
                "task": "compile",
                "accelerator": self.accelerator,
                "precision": self.precision,
                "profile": self.family.profile,
                "system_config": self.system_config or self.family.system_config,
                "memory_mode": self.memory_mode or self.family.memory_mode,
                "programs": requests,
            }
            toolchain = Toolchain(ENVIRONMENT.interpreter, ENVIRONMENT.worker, COMPILE_S, COMPILE_BYTES)
            toolchain.run(request, out)
            told = answer_of(out / "built.json", ENVIRONMENT.worker)
            for refused in told["refused"]:
                raise refusal_of(refused, bundle, self.accelerator, Location(stage=self.name), "another target")
            for program in requests:
                for file, copy in program["of_host"].items():
                    shutil.copyfile(file, out / copy)
        return {file: self._compiled(plan, told) for file, plan in plans.items()}

    def _compiled(self, plan: Mapping[str, Any], told: Mapping[str, Any]) -> Compiled:
        """Return the engines of one plan."""
        programs, figures = plan["programs"], told["figures"]
        besides = [program[part] for program in programs for part in BESIDES if program[part]]
        figure = figures[programs[0]["graph"]]
        built_with = {
            **told["versions"],
            "accelerator": self.accelerator,
            "precision": self.precision,
            "system": plan["system_config"],
            "memory": plan["memory_mode"],
            **{f"Vela's estimate of {name}": str(number) for name, number in figure["estimates"].items()},
            "TOSA against quantised graph": figure["agreement"],
            **{f"TOSA against float32 in {name}": words for name, words in figure["losses"].items()},
            CALL_BYTES: str(figure["call_bytes"]),
        }
        return Compiled(
            {program["graph"]: program["engine"] for program in programs}, built_with, besides=tuple(besides)
        )


def _program(emitted: Emitted, calls: str, limits: Mapping[str, Limits], sides: Sides) -> dict[str, Any]:
    """Return the part of a plan for one graph file.

    Args:
        emitted: the graph.
        calls: file of the recorded calls.
        limits: of hidden scores, by node.
        sides: its parts.
    """
    stem = f"engines/{Path(emitted.file).stem}"
    return {
        "bucket": bucket_name(emitted.sizes),
        "graph": emitted.file,
        "calls": calls,
        "states": {state.input: state.output for state in emitted.lowered.states},
        "lengths": lengths_of(emitted.lowered),
        "limits": {name: dataclasses.asdict(each) for name, each in limits.items()},
        "engine": f"{stem}.tosa",
        "host": f"{stem}.host.onnx" if sides.host.graph.outputs else None,
        "behind": f"{stem}.behind.onnx" if sides.behind.graph.outputs else None,
        "border": f"{stem}.border.json",
        "commands": f"{stem}.commands.npz",
    }


def _write_sides(bundle: Path, graph: str, program: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    """Write the parts of a graph file, that of the device as a module of torch; return what the worker is asked."""
    limits = {name: Limits(**each) for name, each in program["limits"].items()}
    sides = sides_of_model(ir.load(bundle / program["graph"]), limits, program["lengths"])
    stem = Path(program["graph"]).stem
    from compiler.graph.torch_graphs.module import export_module  # it loads the framework

    module = scratch / f"{stem}.pt2"
    export_module(sides.device, graph, module)
    of_host = {}
    for part, model in (("host", sides.host), ("behind", sides.behind)):
        if program[part]:
            file = scratch / f"{stem}.{part}.onnx"
            file.write_bytes(graphs.serialized(ir.external_data.load_to_model(model)))
            of_host[part] = str(file.resolve())
    return {
        "graph": program["graph"],
        "module": str(module.resolve()),
        "host": of_host.get("host"),
        "of_host": {file: program[part] for part, file in of_host.items()},
        "feeds": str((bundle / program["calls"]).resolve()),
        "states": program["states"],
        "tied": _tied(sides, program["states"]),
        "inputs": [str(value.name) for value in sides.device.graph.inputs],
        "outputs": [str(value.name) for value in sides.device.graph.outputs],
        "engine": program["engine"],
        "border": program["border"],
        "commands": program["commands"],
    }


def _tied(sides: Sides, states: Mapping[str, str]) -> dict[str, str]:
    """Return the output of every state by the input of the device that takes it, filled where hidden or as it is."""
    filled = {
        str(node.outputs[0].name): str(node.inputs[1].name)
        for node in sides.host.graph
        if graphs.is_op(node, "Where") and node.inputs[1] is not None
    }
    names = {str(value.name): filled.get(str(value.name), str(value.name)) for value in sides.device.graph.inputs}
    given = {str(value.name) for value in sides.device.graph.outputs}
    return {name: states[state] for name, state in names.items() if states.get(state) in given}
