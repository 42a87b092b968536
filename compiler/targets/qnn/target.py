"""Writes static graphs for the NPU of a Qualcomm SoC, and compiles a context for each with the vendor's compiler.

The graphs are static. For `precision: float16` they are in float32, and the HTP computes them in half precision, which
it does for SoCs that have floating point at all; for `a16w8` and `a8w8` every value is on a grid of 16 or 8 bits, and
weights on one of 8. Every node is on the device: what the provider leaves to the CPU
refuses the build by name. The artefact that ships is what the simulator executes. Tried with onnxruntime-qnn 2.7.0.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self, cast

from compiler.errors import Location, RecipeError
from compiler.graph.runners.session import Session, open_session
from compiler.graph.stages import Lowered, Pass
from compiler.numerics.quantization.value_grids import grids_of_values
from compiler.numerics.quantization.whole_graph import write_on_grids
from compiler.passes.fuse_gelu import FuseGelu
from compiler.targets.base import Built, Compiled, Target
from compiler.targets.environment import Environment
from compiler.targets.qnn.environment import ENVIRONMENT
from compiler.targets.qnn.lint import require_taken
from compiler.targets.qnn.socs import Soc, soc_of
from compiler.targets.static_graphs import Prepared, prepare_static, write_prepared, write_static
from compiler.targets.toolchain import Toolchain, answer_of, build_plans, refusal_of
from compiler.targets.weights_file import WeightsFile
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import Engine, bucket_name

FOLDER = "qnn"

CODE_BITS: Mapping[str, int | None] = {"float16": None, "a16w8": 16, "a8w8": 8}
"""By precision the bits that values are rounded to; None where the HTP computes in half precision."""

COMPILE_S, COMPILE_BYTES = 1800.0, 8 << 30
"""Limits of the compiler for all graph files of a bundle; a graph of 13 MB takes some seconds and 0.3 GB."""


@dataclasses.dataclass(frozen=True)
class Qnn(Target):
    """Write static graphs and `qnn/<graph>.build_plan.json`; compile `engines/<graph>.<sizes>.onnx`, one node each.

    Attributes:
        soc: SoC that contexts are for, by number or part number.
        precision: what the HTP computes in: float16; a16w8 and a8w8, integers of 16 or 8 bits with weights of 8.
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
        if self.precision not in CODE_BITS:
            raise RecipeError(
                f"precision: expected one of {', '.join(CODE_BITS)}, got {self.precision!r}",
                cure="change the option of the target",
            )
        if self.bits is None and not self.device.takes_float:
            raise RecipeError(
                f"soc: expected an SoC whose HTP computes in {self.precision}, got {self.device.name} "
                f"({self.device.number}), which has integers alone",
                cure="write precision: a16w8, or build for another SoC",
            )

    @property
    def device(self) -> Soc:
        """Return the SoC.

        Raises:
            RecipeError: it is not known.
        """
        return soc_of(self.soc)

    @property
    def bits(self) -> int | None:
        """Return the bits of the codes that graph files round values to; None where they are in float32."""
        return CODE_BITS[self.precision]

    @property
    def calibrates(self) -> bool:
        """Whether grids are taken from calibration data."""
        return self.bits is not None

    @property
    def rounds(self) -> bool:
        """Whether the HTP rounds more than a graph in float32 does, which it always does."""
        return True

    def unrounded(self) -> Self:
        """Return a target whose graph files are in float32, for ONNX Runtime alone: no device has to take them."""
        return cast(Self, _InFloat32(forms=self.forms, search_s=self.search_s))

    def passes(self, sizes: Mapping[str, int]) -> tuple[Pass, ...]:
        """Return every target's passes, and those that write what the HTP has no operator for."""
        return (*super().passes(sizes), FuseGelu())

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, lint, round and write every combination of bucket sizes, and the plan to compile them.

        Raises:
            Refused: a dimension stays symbolic, the device does not compute a node, or there are no calibration data.
            DataError: the calibration data never exercise a value.
        """
        prepared = prepare_static(self, lowered, buckets)
        for _, _, graph in prepared.graphs:
            require_taken(graph.model, graph.graph, self.precision)
        if self.bits is not None:
            self._round(prepared, buckets, self.bits)
        built = write_prepared(self, prepared, weights)
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

    def _round(self, prepared: Prepared, buckets: Mapping[str, tuple[int, ...]], bits: int) -> None:
        """Round graphs in place, all by the same ranges: those of one row, and of the largest other sizes."""
        batch = prepared.origin.batch_axis
        one_row = {axis: (1,) if axis == batch else sizes[-1:] for axis, sizes in buckets.items()}
        ((_, _, measured),) = prepare_static(self, prepared.origin, one_row).graphs
        grids, _ = grids_of_values(measured, bits)
        for _, _, graph in prepared.graphs:
            write_on_grids(graph.model, self.name, grids, bits)

    def open(self, path: Path) -> Session:
        """Open a graph file in ONNX Runtime: what the engine is compared with, once it is built."""
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
        plans = build_plans(bundle, FOLDER)
        request = {
            "task": "compile",
            "bundle": str(bundle.resolve()),
            "soc": self.device.number,
            "programs": [program for plan in plans.values() for program in plan["programs"]],
        }
        Toolchain(ENVIRONMENT.interpreter, ENVIRONMENT.worker, COMPILE_S, COMPILE_BYTES).run(request, out)
        told = answer_of(out / "built.json", ENVIRONMENT.worker)
        for refused in told["refused"]:
            raise refusal_of(refused, bundle, self.device.name, Location(stage=self.name), "another SoC")
        built_with = {**told["versions"], "soc": f"{self.device.number}", "soc name": self.device.name}
        return {
            file: Compiled({each["graph"]: each["engine"] for each in plan["programs"]}, built_with)
            for file, plan in plans.items()
        }


class _InFloat32(Qnn):
    """What the graphs were before the target rounded them."""

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze and write every combination of bucket sizes."""
        return write_static(self, lowered, buckets, weights=weights)
