"""Defines the gates' interface, and the records that gates check: what ships, and the originals behind it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

from compiler.base.records.build_report import SpeedRow
from compiler.base.records.findings import Finding
from compiler.build.verify.differences import Difference
from compiler.build.verify.edge_agreement import Disagreement, EdgeCase
from compiler.build.verify.invariance_check import Invariance
from compiler.errors import GateFailed, Location
from compiler.graph.runners.session import Session
from compiler.graph.runners.stream import Advance, OriginalCall, Run
from compiler.graph.stages import Feed, Lowered
from compiler.recipe.gates import ParityGate, Tolerance
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.record import Recipe
from compiler.targets.base import Built, TrialBuilder
from runtime_lite.executors.executor import ExecutorFactory

Phase = Literal["graphs", "written", "bundle", "engines", "end"]
"""What there is when a gate runs.

    graphs   the graphs as they are emitted
    written  the bundle, for the first time: nobody has opened it
    bundle   the bundle as its user opens it
    engines  the same with engines that this build has made; only then
    end      all files and times, also of a bundle that an earlier build has made
"""


class Artefacts(Protocol):
    """Runs the artefacts of one graph; there is one kind for chained calls and one for whole utterances."""

    @property
    def unit(self) -> str:
        """Return the name for a step in messages."""
        ...

    @property
    def compared(self) -> str:
        """Return the bucket that is compared; empty where it is the smallest that fits each step."""
        ...

    def differences(self, advance: Advance, most: int | None = None) -> list[Difference]:
        """Return the differences from the original, by output and state, over all steps or the first `most`."""
        ...

    def disagreement(self, cases: Sequence[EdgeCase], limits: Tolerance) -> Disagreement | None:
        """Return the first edge feed on which the results differ from the original's; None where all agree."""
        ...

    def apart(self) -> dict[str, list[Difference]]:
        """Return, for each bucket, the differences of a row in a batch from the same row alone."""
        ...

    def invariance(self) -> dict[str, Invariance]:
        """Return the checks that were run on padding of each bucket.

        Raises:
            GateFailed: an output changed by a bit.
        """
        ...

    def golden(self) -> bytes:
        """Return the golden file."""
        ...


@dataclasses.dataclass(frozen=True)
class OriginalGraph:
    """The original that a graph is compared with.

    Attributes:
        gate: its parity gate.
        run: runs the original on a stream of feeds.
        streams: feeds to verify with, those of one row each.
        edges: the original's calls on edge feeds.
        check_apart: raises if recordings have another role in the recipe, given the keys of their place.
    """

    gate: ParityGate
    run: Run
    streams: Callable[[], Sequence[Sequence[Feed]]]
    edges: Callable[[], Sequence[EdgeCase]]
    check_apart: Callable[..., None]


@dataclasses.dataclass(frozen=True)
class ShippedGraph:
    """One graph with its artefacts.

    Attributes:
        lowered: the graph after all passes.
        built: its artefacts.
        limits: of parity.
        steps: the original's calls that it is compared with.
        artefacts: runs the built artefacts.
        explain: adds the nodes to blame to a failure, given the steps and limits that it was seen at.
        is_rounded: whether something rounds on purpose: half precision, int8.
        integer_products: names of the nodes of an artefact whose products run on integers; None where ONNX Runtime
            runs it.
        is_timed_here: whether a time that is measured on this machine is that of what ships.
        before_rounding: the artefacts of the graph before the first pass that rounds.
        open_exact: opens what stands for one of these, by the path of its main file.
        forms: names of the variants that have made the artefacts, in order.
        rounding_variants: those of them that round on purpose.
        with_variants: the graph with some of them, in order, as it would ship, and the folder where that lies.
        trial_builder: what builds an engine of an artefact here, without the device; None where nothing does.
        lacks_device: whether this machine has no device for graph files that ship without an engine.
    """

    lowered: Lowered
    built: Built
    limits: Tolerance
    steps: Sequence[OriginalCall]
    artefacts: Artefacts
    explain: Callable[[GateFailed, Sequence[OriginalCall], Tolerance, Advance], GateFailed]
    is_rounded: bool
    integer_products: Callable[[Path], frozenset[str] | None]
    is_timed_here: bool
    before_rounding: Callable[[], Built]
    open_exact: Callable[[Path], Session]
    forms: Sequence[str]
    rounding_variants: Sequence[str]
    with_variants: "Callable[[Sequence[str]], AbstractContextManager[tuple[Path, ShippedGraph]]]"
    trial_builder: TrialBuilder | None = None
    lacks_device: bool = False

    @property
    def runs_here(self) -> bool:
        """Whether the shipped graph itself runs on this machine, without an engine still to be built."""
        return self.built.engine is None and not self.lacks_device


@dataclasses.dataclass(frozen=True)
class Shipped:
    """The object of a check: a bundle, or one graph of it.

    Attributes:
        loaded: the recipe.
        folder: the bundle.
        originals: of its graphs by name.
        graphs: its graphs by name; none in a bundle that an earlier build has made.
        open: opens what stands for an artefact, by the path of its main file.
        executors: opens the bundle's graphs for the runtime.
        speed: times of calls, once they are measured.
        simulated: what a vendor's simulator executes, where the executors are its: it takes seconds for a call; else
            empty.
        name: the checked graph; empty for the whole bundle.
    """

    loaded: LoadedRecipe
    folder: Path
    originals: Mapping[str, OriginalGraph]
    graphs: Mapping[str, ShippedGraph]
    open: Callable[[Path], Session]
    executors: ExecutorFactory
    speed: tuple[SpeedRow, ...] = ()
    simulated: str = ""
    name: str = ""

    def alone(self) -> "list[Shipped]":
        """Return one record for each graph."""
        return [dataclasses.replace(self, name=name) for name in self.originals]

    @property
    def original(self) -> OriginalGraph:
        """Return the original of the graph that the gate examines."""
        return self.originals[self.name]

    @property
    def graph(self) -> ShippedGraph:
        """Return the graph that the gate examines."""
        return self.graphs[self.name]


@dataclasses.dataclass(frozen=True)
class Checked:
    """The result of a gate.

    Attributes:
        findings: one per checked thing.
        detail: of all of them in one phrase, for the line of its stage.
        receipt: the part of the findings that the bundle's receipts keep.
        worst: the finding that the line of its stage has, where one is to be seen there.
    """

    findings: Sequence[Finding]
    detail: str = ""
    receipt: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    worst: Finding | None = None


@dataclasses.dataclass(frozen=True)
class Gate:
    """One promise of every build, or of those whose recipe asks for it.

    Attributes:
        name: also of its findings, unless `promised` gives another one.
        check: looks, and returns what it found. A finding that does not hold fails the build in words made from it; a
            gate that can say more raises `GateFailed` with the findings itself.
        promised: what a recipe asks for of a graph (an empty name for a gate of the whole bundle), as findings with
            nothing measured, which reports show while nobody has looked; None for one of the gate's name, always.
        wanted: whether it runs; None where it does if anything is promised.
        phases: when it runs.
        each_graph: whether it runs once per graph, or once.
        stage: the line of the build that it stands on, where gates share one; else its name.
        cure: what to do about a finding that does not hold.
    """

    name: str
    check: Callable[[Shipped, Advance], Checked]
    promised: Callable[[Recipe, str], Iterable[Finding]] | None = None
    wanted: Callable[[Recipe, Shipped], bool] | None = None
    phases: tuple[Phase, ...] = ("graphs",)
    each_graph: bool = True
    stage: str = ""
    cure: str = "change the model, or take the gate out"

    @property
    def line(self) -> str:
        """Return the progress line of the build on which the gate is shown."""
        return self.stage or self.name

    def promises(self, recipe: Recipe, graph: str) -> list[Finding]:
        """Return the findings that a recipe requires, without measurements."""
        return [Finding(self.name, graph)] if self.promised is None else list(self.promised(recipe, graph))

    def is_wanted(self, recipe: Recipe, shipped: Shipped) -> bool:
        """Whether the gate is to run."""
        if self.wanted is not None:
            return self.wanted(recipe, shipped)
        return bool(self.promises(recipe, shipped.name))

    def run(self, shipped: Shipped, advance: Advance) -> Checked:
        """Run the gate, and raise where a finding does not hold.

        Raises:
            GateFailed: a finding does not hold.
        """
        checked = self.check(shipped, advance)
        require(checked.findings, self.line, self.cure)
        return checked


def require(findings: Sequence[Finding], stage: str, cure: str) -> None:
    """Raise if a finding does not hold; findings with a reason for not being checked pass.

    Raises:
        GateFailed: a finding does not hold; the message names the first, with all findings.
    """
    failed = next(
        (finding for finding in findings if finding.holds is False or (finding.holds is None and not finding.detail)),
        None,
    )
    if failed is None:
        return
    of, detail = (f" of {failed.subject}" if failed.subject else ""), failed.detail
    if failed.limit is None or failed.measured is None:
        words = f"expected {failed.gate}{of} to hold, got {detail or 'that it does not'}"
    else:
        bound = f"at {'least' if failed.is_least else 'most'} {failed.limit:.4g}"
        words = f"expected {failed.gate}{of} of {bound}, got {failed.measured:.4g}"
        words += f" ({detail})" if detail else ""
    raise GateFailed(words, cure=cure, place=Location(stage=stage, graph=failed.graph), findings=findings)
