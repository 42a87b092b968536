"""Qualcomm's NPU: a context per graph file, compiled for a SoC by the vendor's compiler, executed in its simulator.

The graphs are static and in float32, as everywhere; for `precision: float16` the HTP computes them in half precision,
which it does for SoCs that have floating point at all. Every node is on the device: what the provider leaves to the CPU
refuses the build by name. The artefact that ships is what the simulator executes. Tried with onnxruntime-qnn 2.7.0.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import onnx_ir as ir

from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, open_session
from compiler.graph.stages import Lowered, Pass
from compiler.passes.fuse_gelu import FuseGelu
from compiler.targets.base import Built, Compiled, Target
from compiler.targets.environment import Environment
from compiler.targets.qnn.environment import ENVIRONMENT
from compiler.targets.qnn.lint import require_taken
from compiler.targets.qnn.socs import Soc, soc_of
from compiler.targets.static_graphs import write_static
from compiler.targets.toolchain import Toolchain
from compiler.targets.weights_file import WeightsFile
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import Engine, bucket_name

FOLDER = "qnn"

PRECISIONS = ("float16",)

COMPILE_S, COMPILE_BYTES = 1800.0, 8 << 30
"""Limits of the compiler for all graph files of a bundle; a graph of 13 MB takes some seconds and 0.3 GB."""


@dataclasses.dataclass(frozen=True)
class Qnn(Target):
    """Write static graphs and `qnn/<graph>.build_plan.json`; compile `engines/<graph>.<sizes>.onnx`, one node each.

    Attributes:
        soc: SoC that contexts are for, by number or part number.
        precision: what the HTP computes in: float16.
    """

    name: ClassVar[str] = "qnn"
    times_here: ClassVar[bool] = False
    environment: ClassVar[Environment | None] = ENVIRONMENT

    soc: str | int = "SM8550"
    precision: str = "float16"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            RecipeError: an option is wrong; the message names it.
        """
        super().__post_init__()
        if self.precision not in PRECISIONS:
            raise RecipeError(
                f"precision: expected one of {', '.join(PRECISIONS)}, got {self.precision!r}",
                cure="change the option of the target",
            )
        if not self.device.takes_float:
            raise RecipeError(
                f"soc: expected an SoC whose HTP computes in {self.precision}, got {self.device.name} "
                f"({self.device.number}), which has integers alone",
                cure="build for another SoC",
            )

    @property
    def device(self) -> Soc:
        """Return the SoC.

        Raises:
            RecipeError: it is not known.
        """
        return soc_of(self.soc)

    @property
    def rounds(self) -> bool:
        """Whether the HTP rounds the float32 graphs, which it does to half precision."""
        return True

    def unrounded(self) -> Self:
        """Return the target itself: its graph files are in float32, and opened as such."""
        return self

    def passes(self, sizes: Mapping[str, int]) -> tuple[Pass, ...]:
        """Return every target's passes, and those that write what the HTP has no operator for."""
        return (*super().passes(sizes), FuseGelu())

    def accept(self, artifacts: Sequence[Lowered]) -> None:
        """Lint the graphs of all combinations.

        Raises:
            Refused: a dimension stays symbolic, or the device is known not to compute a node as it is written.
        """
        super().accept(artifacts)
        for each in artifacts:
            require_taken(each.model, each.graph)

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, lint and write every combination of bucket sizes, and the plan to compile them.

        Raises:
            Refused: a dimension stays symbolic, or the device does not compute a node.
        """
        built = write_static(self, lowered, buckets, weights=weights)
        file = f"{FOLDER}/{lowered.graph}.build_plan.json"
        plan = canonical_json(
            {
                "target": self.name,
                "graph": lowered.graph,
                "soc": {"number": self.device.number, "name": self.device.name},
                "precision": self.precision,
                "programs": [
                    {
                        "bucket": bucket_name(emitted.sizes),
                        "graph": emitted.file,
                        "engine": f"engines/{Path(emitted.file).stem}.onnx",
                    }
                    for emitted in built.artifacts
                ],
            }
        )
        engine = Engine("not built", self.absent() or "the build has not come to the engine", file, {}, {})
        return dataclasses.replace(built, files={**built.files, file: plan}, engine=engine)

    def open(self, path: Path) -> Session:
        """Open a graph file in ONNX Runtime, in float32: what the engine is compared with, once it is built."""
        session: Session = open_session(str(path), optimize=True)
        return session

    def engine_outlook(self) -> str:
        """Return what a build here does: contexts are compiled and executed in the simulator, or neither."""
        lacking = self.absent()
        if lacking is None:
            return f"compiled for {self.device.name} and executed in the vendor's simulator"
        return f"graphs are linted, no engine is built ({lacking})"

    def compile(self, bundle: Path, out: Path, caches: Path) -> Mapping[str, Compiled]:
        """Compile every graph file in the vendor's environment, in a process with limits of time and memory.

        Raises:
            Refused: the vendor's compiler leaves a node to the CPU, refuses a graph, crashes, or reaches a limit.
            ToolchainAbsent: the environment is not here.
        """
        plans = {
            f"{FOLDER}/{path.name}": json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((bundle / FOLDER).glob("*.build_plan.json"))
        }
        request = {
            "task": "compile",
            "bundle": str(bundle.resolve()),
            "soc": self.device.number,
            "programs": [program for plan in plans.values() for program in plan["programs"]],
        }
        Toolchain(ENVIRONMENT.interpreter, ENVIRONMENT.worker, COMPILE_S, COMPILE_BYTES).run(request, out)
        told = json.loads((out / "built.json").read_text(encoding="utf-8"))
        for refused in told["refused"]:
            raise self._refused(bundle, refused)
        built_with = {**told["versions"], "soc": f"{self.device.number}", "soc name": self.device.name}
        return {
            file: Compiled({each["graph"]: each["engine"] for each in plan["programs"]}, built_with)
            for file, plan in plans.items()
        }

    def _refused(self, bundle: Path, told: Mapping[str, Any]) -> Refused:
        """Return the refusal of a graph file, with the first node that the provider does not take."""
        file, named = told["graph"], told["nodes"]
        where = f"{file}: expected a graph that {self.device.name} computes as a whole"
        if not named:
            return Refused(f"{where}, got: {told['reason']}", cure="change the graph, or build for another SoC")
        first = named[0][0]
        node = next((each for each in ir.load(bundle / file).graph if each.name == first), None)
        listed = ", ".join(f"{name} ({op})" for name, op in named)
        return Refused(
            f"{where}, got {len(named)} that the vendor leaves to the CPU: {listed}",
            cure="write them with other operators in the model, or build for another target",
            place=Location(stage=self.name, node=first, op=named[0][1], source=graphs.source_of(node)),
        )
