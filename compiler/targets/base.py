"""Defines the base class of targets and the records they return; a new target is a folder and an entry of `TARGETS`."""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from compiler.base.pieces import Content
from compiler.base.records.build_report import SIMULATED
from compiler.errors import InternalError, RecipeError
from compiler.graph.runners.session import Session
from compiler.graph.stages import Lowered, Pass
from compiler.numerics.quantization.placement import Placement
from compiler.passes.fold_chunk_lengths import FoldChunkLengths
from compiler.passes.freeze_axes import FreezeAxes
from compiler.targets.environment import Environment
from compiler.targets.formed_graphs import VariantOutcome
from compiler.targets.forms import SEARCH, STANDARD, Choice, Variant, names_of, require_known
from compiler.targets.weights_file import WeightsFile
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.manifest import Engine, Scalar
from runtime_lite.format.reader import Bundle

SEARCH_S = 120.0
"""Seconds that a search for variants may take per graph."""


@dataclasses.dataclass(frozen=True)
class Emitted:
    """One artefact: a graph at one combination of bucket sizes.

    Attributes:
        sizes: size per bucketed axis.
        file: its main file, relative to the bundle; artefacts that differ in their rows alone may share it.
        files: other files it reads.
        lowered: the graph that was written, for verification.
    """

    sizes: Mapping[str, int]
    file: str
    files: tuple[str, ...]
    lowered: Lowered


@dataclasses.dataclass(frozen=True)
class Built:
    """A target's result for one graph.

    Attributes:
        artifacts: one per combination of buckets.
        files: content by path relative to the bundle.
        versions: opset and IR version of the graphs.
        engine: for a target with a vendor's compiler, the engine that has to be built.
        refused: what of its offers the target did not keep for this graph, with reasons.
        forms: what each variant of the plan has done, in order.
        options: the executor's options for the graph files, as in the manifest.
    """

    artifacts: tuple[Emitted, ...]
    files: Mapping[str, Content]
    versions: Mapping[str, int]
    engine: Engine | None = None
    refused: tuple[str, ...] = ()
    forms: tuple[VariantOutcome, ...] = ()
    options: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)

    @property
    def by_file(self) -> tuple[tuple[Emitted, ...], ...]:
        """Return the artefacts in groups that share a graph file, in the order in which files appear first."""
        groups: dict[str, list[Emitted]] = {}
        for emitted in self.artifacts:
            groups.setdefault(emitted.file, []).append(emitted)
        return tuple(map(tuple, groups.values()))


CALL_BYTES = "bytes per call"
"""Under this name an engine's `built_with` has the bytes of one call of its first graph file, in and out, where the
device takes and gives other types than the graph."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A vendor's compiler's results for the graph files of one graph.

    Attributes:
        files: engine file by graph file, relative to the output folder.
        built_with: versions and device by name.
        described: descriptions of the engines built just now, by graph file, where the compiler gives them.
        besides: other files that belong to the engines and ship with them.
    """

    files: Mapping[str, str]
    built_with: Mapping[str, str]
    described: "Mapping[str, TrialEngine]" = dataclasses.field(default_factory=dict)
    besides: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class EngineLayer:
    """One kernel of an engine, as the vendor's builder describes it; types are called as NumPy calls them.

    Attributes:
        name: its name.
        nodes: names of the nodes of the graph file that it computes, in whole or in part.
        multiplies: whether it computes products or convolutions.
        reads: types of its inputs.
        holds: types of the constants that it holds, the largest first, single numbers left out.
        writes: types of its results.
        converts: whether it changes types inside, where the builder does not show them.
    """

    name: str
    nodes: frozenset[str]
    multiplies: bool
    reads: frozenset[str]
    holds: tuple[str, ...]
    writes: frozenset[str]
    converts: bool

    @property
    def shown(self) -> frozenset[str]:
        """Return every type at the layer's border."""
        return self.reads | self.writes | frozenset(self.holds)


@dataclasses.dataclass(frozen=True)
class TrialEngine:
    """An engine that a vendor's builder has made of a graph file without the device; it was not run.

    Attributes:
        builder: which builder, with its version.
        device: the device that the engine is for.
        content_hash: SHA-256 of the engine, in hex.
        size_bytes: of the engine.
        layers: its kernels; None where the builder's description of them cannot be read.
    """

    builder: str
    device: str
    content_hash: str
    size_bytes: int
    layers: tuple[EngineLayer, ...] | None

    @property
    def words(self) -> str:
        """Return a description of the engine, for messages."""
        return f"built by {self.builder} for {self.device}, not run"


TrialBuilder = Callable[[Path, Sequence[Emitted]], TrialEngine]
"""Makes an engine of the artefacts that share a graph file, which lies in a folder; raises `Refused` where the vendor's
builder refuses it."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One thing that a target's engines or runtime need: its version, or its fault and the cure.

    Attributes:
        name: its name.
        found: its version, or its fault.
        cure: what to do about it; empty where nothing is wrong.
        is_needed: whether engines cannot be built without it.
    """

    name: str
    found: str
    cure: str = ""
    is_needed: bool = True


def part_of(environment: Environment) -> Part:
    """Return the environment of a vendor's toolchain as a part of its target."""
    fault = environment.fault()
    if fault:
        return Part("toolchain", fault, f"`{environment.install}`")
    return Part("toolchain", f"{environment.version}, {environment.folder}")


def missing(parts: Iterable[Part]) -> str | None:
    """Return the fault of the first needed part that has one; None where every part is right."""
    return next((part.found for part in parts if part.cure and part.is_needed), None)


@dataclasses.dataclass(frozen=True)
class Target(abc.ABC):
    """A named frozen record; options are its fields, and every one has a default.

    Attributes:
        environment: where the vendor's toolchain needs packages of its own, the environment that has them.
        offers: its variants, in the order in which they run.
        forms: which of them are on.
        search_s: seconds that a search for them may take per graph.
        name: as recipes and manifests write it; where there is a vendor, its folder.
        ships: whether there is a bundle.
        packages: distributions that `emit` and `open` need besides those that every build needs.
        times_here: whether what runs a finished artefact on this machine takes the time that it takes where it ships.
        simulated: where that is a simulator, what it executes, in words for the verdict.
        pass_options: options of the recipe's passes, by pass, where the recipe leaves them out.
        placement: its rules for QuantizeLinear and DequantizeLinear, where it has any.
        trial: script of the bundle that tries on the device what cannot be tried without it; empty where none ships.
    """

    name: ClassVar[str]
    ships: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnx-ir", "onnxruntime")
    times_here: ClassVar[bool] = True
    simulated: ClassVar[str] = SIMULATED
    pass_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {"pack_states": {"most": None}}
    placement: ClassVar[Placement | None] = None
    trial: ClassVar[str] = ""
    environment: ClassVar[Environment | None] = None
    offers: ClassVar[tuple[Variant, ...]] = ()

    forms: Choice = STANDARD
    search_s: float = SEARCH_S

    def __post_init__(self) -> None:
        """Check the plan.

        Raises:
            RecipeError: a variant is not offered; the message names it.
        """
        require_known(self.forms, self.offers)
        if not 0.0 < self.search_s < math.inf:
            raise RecipeError(f"search_s: expected seconds above 0, got {self.search_s}", cure="change the value")

    @property
    def searches(self) -> bool:
        """Whether the plan has to be found by measuring."""
        return self.forms == SEARCH

    def planned(self, graph: str, *, lossy: bool) -> Self:
        """Return the target for one graph, with its plan written out unless it is yet to be found.

        Args:
            graph: the graph's name.
            lossy: whether its parity gate allows a loss.
        """
        return self if self.searches else self.with_plan(names_of(self.forms, self.offers, graph, lossy=lossy))

    def with_plan(self, names: Sequence[str]) -> Self:
        """Return the target with these variants on, without the options of a search."""
        return dataclasses.replace(self, forms=tuple(names), search_s=SEARCH_S)

    @property
    def plan(self) -> tuple[Variant, ...]:
        """Return the variants that are on, of a target whose plan is written out or standard."""
        names = names_of(self.forms, self.offers, "", lossy=True)
        return tuple(variant for variant in self.offers if variant.name in names)

    @property
    def rounds(self) -> bool:
        """Whether the runtime of the artefacts rounds more than their graphs do, so that the lossy limits apply."""
        return False

    def unrounded(self) -> Self:
        """Return the target without that rounding."""
        return self

    @property
    def calibrates(self) -> bool:
        """Whether `emit` measures the graph on calibration data."""
        return False

    def passes(self, sizes: Mapping[str, int]) -> tuple[Pass, ...]:
        """Return the passes that follow the recipe's for one combination of bucket sizes, before all forms."""
        return (FreezeAxes(tuple(sizes.items())), FoldChunkLengths(tuple(sizes.items())))

    @property
    def opens_rows(self) -> bool:
        """Whether one file may serve all numbers of rows."""
        return False

    def accept(self, artifacts: Sequence[Lowered]) -> None:  # noqa: B027  (most targets take every static graph)
        """Check the graphs of all combinations before they are written; all sizes, except open rows, are numbers.

        Raises:
            Refused: the target rejects one of them.
        """

    @abc.abstractmethod
    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Write the graph for every combination of bucket sizes.

        Args:
            lowered: the graph.
            buckets: sizes by axis.
            weights: file to which weights are added, shared with other graphs; None for a file of the graph's own.

        Raises:
            Refused: the graph is not legal for this target.
        """

    @abc.abstractmethod
    def open(self, path: Path) -> Session:
        """Return a session that runs an artefact when it is verified on this machine.

        Args:
            path: the main file, with the files that it reads beside it.
        """

    def integer_products(self, path: Path) -> frozenset[str] | None:
        """Return the names of the nodes of an artefact whose products run in integers; None where ONNX Runtime runs it.

        Args:
            path: the main file, with the files that it reads beside it.
        """
        return None

    def parts(self) -> tuple[Part, ...]:
        """Return the parts that the vendor's compiler or runtime needs, as found on this machine, in order of need.

        What is found names the version: a bundle verified with another version is built again.

        Raises no error of Slipway: a part describes its own fault.
        """
        return () if self.environment is None else (part_of(self.environment),)

    def absent(self) -> str | None:
        """Return why the vendor's compiler cannot run here; None where it can, or where the target has none."""
        return missing(self.parts())

    def trial_builder(self, out: Path) -> TrialBuilder | None:
        """Return a builder of engines that needs no device, to check that the vendor accepts the graphs; else None.

        Args:
            out: a folder for engines that ship, where `compile` finds them.

        Raises no error of ours: where there is no builder here, `trial_absent` has the reason.
        """
        return None

    def trial_absent(self) -> str:
        """Return why no such builder checks the graphs here, where one could, with a cure; empty otherwise."""
        return ""

    def engine_outlook(self) -> str:
        """Return for messages how a build on this machine handles engines; empty without a vendor's compiler."""
        return ""

    def compile(self, bundle: Path, out: Path, caches: Path) -> Mapping[str, Compiled]:
        """Run the vendor's compiler on every build plan of a bundle.

        Args:
            bundle: the bundle's folder, which is not changed.
            out: a folder for engines, with those that `trial_builder` built from the same graph files; where it has
                built none, the folder may not exist.
            caches: a folder for caches that make the next run faster.

        Returns:
            The engines, by the plan's file.

        Raises:
            Refused: the vendor's compiler refuses a graph.
            ToolchainAbsent: a part of it is missing.
        """
        raise InternalError(f"expected a target with a compiler of its vendor, got {self.name} for {bundle}")

    def alternatives(self, bundle: Path) -> Mapping[str, Mapping[str, Content]]:
        """Return graph files from which engines may be built in place of those of a bundle, where these are faster.

        Args:
            bundle: the bundle's folder, which is not changed.

        Returns:
            By the name of the alternative, every graph file that differs.
        """
        return {}

    def cannot_run(self) -> str | None:
        """Return why this machine, which has built engines, cannot run them; None where it can."""
        return None

    def executor(self, bundle: Bundle, name: str, threads: int) -> Executor:
        """Return the executor of a graph of a bundle finished here: the device, or a simulator of it."""
        return make_executor(bundle, name, threads)
