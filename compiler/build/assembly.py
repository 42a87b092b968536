"""One bundle on its way into its folder: emitted, held to every gate, written."""

import contextlib
import dataclasses
import functools
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import runtime_lite
from compiler.base.cache.tool_versions import tool_versions
from compiler.base.pieces import Content, is_written, write_files
from compiler.base.records.build_report import EngineRow
from compiler.base.records.drift_curves import curve_of
from compiler.base.records.findings import BUILT
from compiler.build.bundle.engine_stand_in import EngineStandIns
from compiler.build.bundle.finish import build_engines, unfinished
from compiler.build.bundle.kept_bundle import Found, KeptBundle, checkpoint_hashes
from compiler.build.bundle.manifest_of import GraphParts, bundle_files
from compiler.build.bundle.proof_files import Derivation, proof_files
from compiler.build.bundle.receipts import enter_receipts, receipts_in
from compiler.build.bundle.source_lines import built_without_lines, derivation_without_lines, proof_without_lines
from compiler.build.bundle.staged_folder import write_costs
from compiler.build.lowering.lowering import Lowering
from compiler.build.report.build_record import BuildRecord
from compiler.build.report.progress import Progress
from compiler.build.verify.chunk_lengths import Flush
from compiler.build.verify.gate import Artefacts, OriginalGraph, Phase, Shipped, ShippedGraph
from compiler.build.verify.gates import run_gates
from compiler.build.verify.gates.engine_layers import require_read
from compiler.build.verify.pipeline_answers import golden_together
from compiler.build.verify.speed import measure_speed
from compiler.build.verify.stream_artefacts import StreamArtefacts
from compiler.build.verify.utterance_artefacts import UtteranceArtefacts
from compiler.graph.runners.mapped_weights import unload_weights
from compiler.recipe.gates import BudgetGate
from compiler.recipe.load import LoadedRecipe
from compiler.targets.base import Built, Target
from compiler.targets.forms import Variant
from compiler.targets.weights_file import WeightsFile
from runtime_lite.executors.executor import ExecutorFactory, make_executor
from runtime_lite.format.manifest import Sources
from runtime_lite.format.reader import read_bundle

NOT_MEASURED = "not measured: no engine runs here"

NOT_OF_THE_DEVICE = "not measured: what runs here does not take the time of the device"


class Assembly:
    """A bundle while it is made; `pipeline` has the order of the steps.

    Args:
        loaded: the recipe.
        folder: where the bundle is made.
        engines: where engines lie until they are entered into the bundle, a folder that nobody else writes to.
        graphs: lowered graphs by name.
        progress: shows the stages.
        record: takes in what is measured.
    """

    def __init__(
        self,
        loaded: LoadedRecipe,
        folder: Path,
        engines: Path,
        graphs: Mapping[str, Lowering],
        progress: Progress,
        record: BuildRecord,
    ) -> None:
        self.loaded, self.folder, self.engines = loaded, folder, engines
        self.lowerings, self.progress, self.record = graphs, progress, record
        self.target = next(iter(graphs.values())).target
        self.receipts: dict[str, Any] = {}
        self.parts: dict[str, GraphParts] = {}
        self.together: bytes | None = None
        originals = {name: _original_of(lowering) for name, lowering in graphs.items()}
        self.shipped = Shipped(loaded, folder, originals, {}, self.target.open, make_executor)

    def recall(self, kept: KeptBundle) -> None:
        """Restore the bundle of an earlier build, with its findings and speeds."""
        for lowering in self.lowerings.values():
            lowering.recall_variants()
        with self.progress.stage("", "bundle") as handle:
            found = kept.recall(self.folder)
            self.record.findings += found.findings
            self.record.speed += found.speed
            self.receipts = receipts_in(self.folder)
            handle.end(cached=True)

    def emit(self) -> None:
        """Write every graph's artefacts to the folder."""
        shared: dict[str, WeightsFile] = {}
        for name, lowering in self.lowerings.items():
            latency = self.loaded.recipe.graphs[name].latency
            weights = None if latency is None else shared.setdefault(latency.of, WeightsFile(f"{latency.of}.weights"))
            built = lowering.emit(weights)
            if not self.loaded.recipe.source_lines:
                built = built_without_lines(built)
            write_files(self.folder, built.files)
            unload_weights()
            forms = lowering.target.plan
            shipped = _shipped_graph(lowering, forms, built, self.folder, self.engines, self.loaded)
            self.shipped = dataclasses.replace(self.shipped, graphs={**self.shipped.graphs, name: shipped})

    def check(self, phase: Phase) -> None:
        """Run every gate of a phase.

        Raises:
            GateFailed: a promise does not hold.
        """
        run_gates(phase, self.shipped, self.progress, self.record.findings, self.receipts)

    def require_read_layers(self) -> None:
        """Require that the layers of every engine could be read.

        Raises:
            GateFailed: the layers of an engine could not be read.
        """
        require_read(self.record.findings)

    def write(self) -> None:
        """Write the bundle's files; files that exist already stay as they are."""
        if not self.parts:
            self.parts = {
                name: _parts_of(self.shipped.graphs[name], lowering, source_lines=self.loaded.recipe.source_lines)
                for name, lowering in self.lowerings.items()
            }
        sources, tools = _sources_of(self.loaded, self.lowerings), tool_versions(self.target.packages)
        files = bundle_files(self.loaded, self.parts, self.receipts, sources, tools, self.together)
        write_files(self.folder, {name: each for name, each in files.items() if _differs(self.folder / name, each)})
        unload_weights()

    def record_together(self) -> None:
        """Record the results of the wired graphs together, for the bundle's golden file."""
        if self.loaded.recipe.wiring:
            with runtime_lite.Runtime() as runtime:
                self.together = golden_together(self.loaded, runtime.load(self.folder, self.shipped.executors))

    def replay(self) -> None:
        """Run the gates on what was written; a stand-in for an engine records its inputs, for the engine's machine."""
        runs_here = all(graph.runs_here for graph in self.shipped.graphs.values())
        stand_ins = None if runs_here else EngineStandIns(self.target.open)
        self._open_with(stand_ins or make_executor)
        self.check("written")
        if stand_ins is not None:
            limits = {name: graph.limits.max_abs for name, graph in self.shipped.graphs.items()}
            for name, content in stand_ins.feeds(limits).items():
                self.parts[name] = self.parts[name].with_feeds(name, content)
            self._open_with(EngineStandIns(self.target.open))

    def _open_with(self, executors: ExecutorFactory) -> None:
        self.shipped = dataclasses.replace(self.shipped, executors=executors)

    def measure(self) -> None:
        """Measure the times of calls of the graphs that run on this machine."""
        with self.progress.stage("", "speed") as handle:
            runnable = {name: graph for name, graph in self.shipped.graphs.items() if graph.is_timed_here}
            for name, graph in runnable.items():
                self.record.speed += measure_speed(self.folder, graph.built.artifacts, name, self.target.open)
            write_costs(self.folder, self.record.speed)
            missing = len(runnable) < len(self.shipped.graphs)
            handle.end(detail=_unmeasured(self.loaded.recipe.gates.budget, self.target) if missing else "")

    def keep(self, kept: KeptBundle) -> None:
        """Keep the result for later builds with the same inputs."""
        why = kept.keep(self.folder, Found(tuple(self.record.findings), tuple(self.record.speed)))
        if why:
            self.progress.say(f"The bundle is complete; it is {why}.")

    def build_engines(self, caches: Path) -> None:
        """Run the vendor's compiler if installed, and the gates on its engines; record the result of each engine."""
        with read_bundle(self.folder) as bundle:
            waiting = unfinished(bundle.manifest)
        if not waiting or self.target.absent() is not None:
            self.record.engines = tuple(self._unbuilt(graph, reason) for graph, reason in waiting.items())
            return
        with self.progress.stage("", "engine") as handle:
            finished = build_engines(self.target, self.folder, self.engines, caches)
            self.record.speed += finished.speed
            done = "verified and timed" if self.target.times_here else "verified"
            ended = done if finished.not_run is None else f"built and not run: {finished.not_run}"
            handle.end(detail=f"engines of {len(waiting)} graphs, {ended}")
        if finished.not_run is not None:
            self.record.engines = tuple(
                EngineRow(graph, "built", finished.not_run, "built", self._built_by(graph)) for graph in waiting
            )
            return
        self._open_with(self.target.executor)
        self.check("engines")
        enter_receipts(self.folder, self.receipts)
        self.record.engines = tuple(EngineRow(graph, "built", reached="run") for graph in waiting)

    def _built_by(self, graph: str) -> str:
        """Return the name of the builder that built the graph's engine without running it, else an empty string."""
        return next((each.detail for each in self.record.findings if (each.gate, each.graph) == (BUILT, graph)), "")

    def _unbuilt(self, graph: str, reason: str) -> EngineRow:
        """Return the row of a graph without engines in the bundle; a builder may have built them elsewhere."""
        by = self._built_by(graph)
        if by:
            return EngineRow(graph, "not built", reason, "built", by)
        return EngineRow(graph, "not built", reason, "linted", self.target.trial_absent())

    def close(self) -> None:
        """Run the gates on the whole bundle, and record the sizes of its files and the drift."""
        self._note_sizes()
        self.record.drift |= {
            name: tuple(map(curve_of, self.receipts[name].get("drift", ()))) for name in self.lowerings
        }
        self.shipped = dataclasses.replace(self.shipped, speed=tuple(self.record.speed))
        self.check("end")
        enter_receipts(self.folder, self.receipts)
        self._note_sizes()

    def _note_sizes(self) -> None:
        self.record.sizes |= {
            p.relative_to(self.folder).as_posix(): p.stat().st_size
            for p in sorted(self.folder.rglob("*"))
            if p.is_file()
        }


def _original_of(lowering: Lowering) -> OriginalGraph:
    original = lowering.original
    return OriginalGraph(
        gate=lowering.gate,
        run=lambda feeds: original.reference().run(feeds),
        streams=original.streams,
        edges=original.edges,
        check_apart=original.check_apart,
    )


def _shipped_graph(
    lowering: Lowering, forms: Sequence[Variant], built: Built, folder: Path, engines: Path, loaded: LoadedRecipe
) -> ShippedGraph:
    """Return the record of one graph for the gates: artefacts of some variants in a folder, engines in another."""
    final, steps = lowering.final(), lowering.original.steps(max(lowering.gate.chained_steps, 1))
    spec = loaded.recipe.graphs[lowering.name]
    limits, open_artifact = lowering.gate.limits(lossy=lowering.is_rounded), lowering.target.open
    artefacts: Artefacts = (
        UtteranceArtefacts(folder, final, built.artifacts, limits, steps, open_artifact)
        if final.has_utterances
        else StreamArtefacts(
            folder,
            final,
            built.artifacts,
            limits,
            steps,
            lowering.original.streams(),
            open_artifact,
            Flush(spec.flush, spec.flush_values),
        )
    )
    return ShippedGraph(
        lowered=final,
        built=built,
        limits=limits,
        steps=steps,
        artefacts=artefacts,
        explain=(lambda error, *_: error) if forms else lowering.explain,
        is_rounded=lowering.is_rounded,
        integer_products=lowering.target.integer_products,
        is_timed_here=built.engine is None and lowering.target.times_here,
        before_rounding=lowering.emit_exact,
        open_exact=lowering.target.unrounded().open,
        forms=[variant.name for variant in forms],
        rounding_variants=[variant.name for variant in forms if variant.made.lossy],
        with_variants=functools.partial(_in_part, lowering, loaded),
        trial_builder=lowering.target.trial_builder(engines),
    )


@contextlib.contextmanager
def _in_part(lowering: Lowering, loaded: LoadedRecipe, names: Sequence[str]) -> Iterator[tuple[Path, ShippedGraph]]:
    """Yield a graph emitted with some of its variants only; a failure of the graph is blamed on the last of them."""
    forms = [variant for variant in lowering.target.plan if variant.name in names]
    built = lowering.emit_with(names)
    with tempfile.TemporaryDirectory() as scratch:
        write_files(Path(scratch), built.files)
        graph = _shipped_graph(lowering, forms, built, Path(scratch), Path(scratch), loaded)
        explain = functools.partial(lowering.explain_variant, names[:-1], built) if forms else lowering.explain
        yield Path(scratch), dataclasses.replace(graph, explain=explain)


def _parts_of(shipped: ShippedGraph, lowering: Lowering, *, source_lines: bool) -> GraphParts:
    """Return what the bundle records of one graph."""
    steps = tuple(lowering.proofs.values())
    derived = lowering.original.captured.derivation()
    derivation = None if derived is None else Derivation(*derived)
    if not source_lines:
        steps = tuple(map(proof_without_lines, steps))
        derivation = None if derivation is None else derivation_without_lines(derivation)
    certificate, proofs = proof_files(lowering.name, steps, shipped.built, derivation, lossy=shipped.is_rounded)
    return GraphParts(
        lowered=shipped.lowered,
        parts=shipped.lowered.parts,
        buckets=lowering.buckets,
        target=lowering.target.name,
        built=shipped.built,
        certificate=certificate,
        golden=shipped.artefacts.golden(),
        proofs=proofs,
    )


def source_files(graphs: Mapping[str, Lowering]) -> list[Path]:
    """Return all files that the graphs come from."""
    return [file for graph in graphs.values() for file in graph.original.source_files()]


def _sources_of(loaded: LoadedRecipe, graphs: Mapping[str, Lowering]) -> Sources:
    return Sources(
        checkpoint=checkpoint_hashes(source_files(graphs)),
        recipe=hashlib.sha256(loaded.text.encode()).hexdigest(),
        data={
            f"{key} {name}": digest
            for name, graph in graphs.items()
            for key, digest in graph.original.data_digests().items()
        },
    )


def _unmeasured(budget: BudgetGate | None, target: Target) -> str:
    """Say why speed was not measured here, and which promises of the recipe are therefore not checked."""
    absent = target.absent() or target.cannot_run()
    said = NOT_MEASURED if absent else "measured with the engine" if target.times_here else NOT_OF_THE_DEVICE
    names = ("max_time_ratio", "max_size_ratio", *(("p95_ms",) if absent or not target.times_here else ()))
    open_ones = [f"gates.budget.{name}" for name in names if getattr(budget, name, None) is not None]
    return f"{said}; not checked: {', '.join(open_ones)}" if open_ones else said


def _differs(path: Path, content: Content) -> bool:
    if not path.is_file():
        return True
    with path.open("rb") as file:
        return not is_written(file, content)
