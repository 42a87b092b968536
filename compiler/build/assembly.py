"""Turns lowered graphs into a bundle in steps that `pipeline` calls: emits artefacts, runs gates, writes files."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

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
from compiler.build.bundle.receipts import enter_receipts, receipts_in
from compiler.build.bundle.source_lines import built_without_lines
from compiler.build.bundle.staged_folder import write_costs
from compiler.build.lowering.emission import emit, recall_variants
from compiler.build.lowering.lowering import Lowering
from compiler.build.report.build_record import BuildRecord
from compiler.build.report.progress import Progress
from compiler.build.shipped_graphs import graph_parts, original_graph, shipped_graph
from compiler.build.verify.gate import Phase, Shipped, ShippedGraph
from compiler.build.verify.gates import run_gates
from compiler.build.verify.pipeline_answers import golden_together
from compiler.build.verify.speed import measure_speed
from compiler.graph.runners.mapped_weights import unload_weights
from compiler.recipe.gates import BudgetGate
from compiler.recipe.load import LoadedRecipe
from compiler.targets.base import CALL_BYTES, Built, Target
from compiler.targets.weights_file import WeightsFile
from runtime_lite.executors.executor import ExecutorFactory, make_executor
from runtime_lite.format.manifest import Graph, Sources, static_shape, tensor_bytes
from runtime_lite.format.reader import read_bundle

NOT_MEASURED = "not measured: no engine runs here"

NOT_OF_THE_DEVICE = "not measured: what runs here does not take the time of the device"


@dataclasses.dataclass(frozen=True, eq=False)
class Assembly:
    """A bundle being made. Every step returns the next one; the files and the build's record grow beside it.

    Attributes:
        loaded: the recipe.
        folder: where the bundle is made.
        engines: where engines lie until they are entered into the bundle, a folder that nobody else writes to.
        lowerings: lowered graphs by name.
        progress: prints the stages.
        record: collects the measurements.
        shipped: the graphs that the gates check.
        receipts: the records that gates wrote for the bundle, by graph.
        parts: the bundle's records of each graph, once the graphs are checked.
        together: results of the wired graphs together, once they are recorded.
    """

    loaded: LoadedRecipe
    folder: Path
    engines: Path
    lowerings: Mapping[str, Lowering]
    progress: Progress
    record: BuildRecord
    shipped: Shipped
    receipts: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, GraphParts] = dataclasses.field(default_factory=dict)
    together: bytes | None = None

    @property
    def target(self) -> Target:
        """Return the target of the bundle."""
        return next(iter(self.lowerings.values())).plan.target

    def check(self, phase: Phase) -> "Assembly":
        """Run every gate of a phase, and take in their receipts.

        Raises:
            GateFailed: a promise does not hold.
        """
        receipts = run_gates(phase, self.shipped, self.progress, self.record.findings, self.receipts)
        return dataclasses.replace(self, receipts=receipts)

    def opened_with(self, executors: ExecutorFactory) -> "Assembly":
        """Return the bundle as these executors run it."""
        return dataclasses.replace(self, shipped=dataclasses.replace(self.shipped, executors=executors))


def assembly_of(
    loaded: LoadedRecipe,
    folder: Path,
    engines: Path,
    lowerings: Mapping[str, Lowering],
    progress: Progress,
    record: BuildRecord,
) -> Assembly:
    """Return the first state of a bundle, with no files; the arguments are attributes of `Assembly`."""
    target = next(iter(lowerings.values())).plan.target
    originals = {name: original_graph(lowering) for name, lowering in lowerings.items()}
    shipped = Shipped(loaded, folder, originals, {}, target.open, make_executor)
    return Assembly(loaded, folder, engines, lowerings, progress, record, shipped)


def recall(assembly: Assembly, kept: KeptBundle) -> Assembly:
    """Restore the bundle of an earlier build, with its findings and speeds."""
    for lowering in assembly.lowerings.values():
        recall_variants(lowering)
    with assembly.progress.stage("", "bundle") as handle:
        found = kept.recall(assembly.folder)
        assembly.record.findings += found.findings
        assembly.record.speed += found.speed
        handle.end(cached=True)
    return dataclasses.replace(assembly, receipts=receipts_in(assembly.folder))


def emit_graphs(assembly: Assembly) -> Assembly:
    """Write every graph's artefacts to the folder."""
    recipe, shared, graphs = assembly.loaded.recipe, dict[str, WeightsFile](), dict[str, ShippedGraph]()
    for name, lowering in assembly.lowerings.items():
        latency = recipe.graphs[name].latency
        weights = None if latency is None else shared.setdefault(latency.of, WeightsFile(f"{latency.of}.weights"))
        built = emit(lowering, weights)
        if not recipe.source_lines:
            built = built_without_lines(built)
        write_files(assembly.folder, built.files)
        unload_weights()
        graphs[name] = _shipped(assembly, lowering, built)
    return dataclasses.replace(assembly, shipped=dataclasses.replace(assembly.shipped, graphs=graphs))


def record_parts(assembly: Assembly) -> Assembly:
    """Record in the bundle, for each graph, its proofs, its certificate and its golden file."""
    parts = {
        name: graph_parts(assembly.shipped.graphs[name], lowering, source_lines=assembly.loaded.recipe.source_lines)
        for name, lowering in assembly.lowerings.items()
    }
    return dataclasses.replace(assembly, parts=parts)


def record_together(assembly: Assembly) -> Assembly:
    """Record the results of the wired graphs together, for the bundle's golden file."""
    if not assembly.loaded.recipe.wiring:
        return assembly
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(assembly.folder, assembly.shipped.executors)
        return dataclasses.replace(assembly, together=golden_together(assembly.loaded, model))


def write_bundle(assembly: Assembly) -> None:
    """Write the bundle's files; files that exist already stay as they are."""
    sources, tools = _sources_of(assembly.loaded, assembly.lowerings), tool_versions(assembly.target.packages)
    files = bundle_files(assembly.loaded, assembly.parts, assembly.receipts, sources, tools, assembly.together)
    changed = {name: content for name, content in files.items() if _differs(assembly.folder / name, content)}
    write_files(assembly.folder, changed)
    unload_weights()


def replay(assembly: Assembly) -> Assembly:
    """Run the gates on the written bundle; a stand-in for an engine records its inputs, for the engine's machine."""
    graphs = assembly.shipped.graphs
    if all(graph.runs_here for graph in graphs.values()):
        return assembly.opened_with(make_executor).check("written")
    stand_ins = EngineStandIns(assembly.target.open)
    checked = assembly.opened_with(stand_ins).check("written")
    limits = {name: graph.limits.max_abs for name, graph in graphs.items()}
    recorded = {name: feeds for name, feeds in stand_ins.feeds(limits).items() if graphs[name].built.engine is not None}
    fed = {name: assembly.parts[name].with_feeds(name, feeds) for name, feeds in recorded.items()}
    checked = dataclasses.replace(checked, parts={**checked.parts, **fed})
    return checked.opened_with(EngineStandIns(assembly.target.open))


def measure(assembly: Assembly) -> None:
    """Measure the times of calls of the graphs that run on this machine."""
    graphs, target = assembly.shipped.graphs, assembly.target
    with assembly.progress.stage("", "speed") as handle:
        runnable = {name: graph for name, graph in graphs.items() if graph.is_timed_here}
        for name, graph in runnable.items():
            assembly.record.speed += measure_speed(assembly.folder, graph.built.artifacts, name, target.open)
        write_costs(assembly.folder, assembly.record.speed)
        is_missing = len(runnable) < len(graphs)
        handle.end(detail=_unmeasured(assembly.loaded.recipe.gates.budget, target) if is_missing else "")


def keep(assembly: Assembly, kept: KeptBundle) -> None:
    """Keep the result for later builds with the same inputs."""
    record = assembly.record
    why = kept.keep(assembly.folder, Found(tuple(record.findings), tuple(record.speed)))
    if why:
        assembly.progress.say(f"The bundle is complete; it is {why}.")


def finish_engines(assembly: Assembly, caches: Path) -> Assembly:
    """Run the vendor's compiler if installed, and the gates on its engines; record the result of each engine.

    Args:
        assembly: the bundle, whose files are written.
        caches: a folder for caches of the vendor's compiler.
    """
    record, target = assembly.record, assembly.target
    with read_bundle(assembly.folder) as bundle:
        waiting = unfinished(bundle.manifest)
    if not waiting or target.absent() is not None:
        record.engines = tuple(_unbuilt(assembly, graph, reason) for graph, reason in waiting.items())
        return assembly
    with assembly.progress.stage("", "engine") as handle:
        finished = build_engines(target, assembly.folder, assembly.engines, caches)
        record.speed += finished.speed
        done = "verified and timed" if target.times_here else "verified"
        ended = done if finished.not_run is None else f"built and not run: {finished.not_run}"
        handle.end(detail="; ".join([f"engines of {len(waiting)} graphs, {ended}", *finished.choices]))
    if finished.not_run is not None:
        record.engines = tuple(
            EngineRow(graph, "built", finished.not_run, "built", _built_by(assembly, graph)) for graph in waiting
        )
        return assembly
    opened = assembly.opened_with(target.executor)
    reached: Literal["run", "simulated"] = "run" if target.times_here else "simulated"
    if reached == "simulated":
        shipped = dataclasses.replace(opened.shipped, simulated=target.simulated, graphs=_graphs_again(assembly))
        opened = dataclasses.replace(opened, shipped=shipped)
    checked = opened.check("engines")
    enter_receipts(assembly.folder, checked.receipts)
    by = target.simulated if reached == "simulated" else ""
    record.engines = tuple(EngineRow(graph, "built", reached=reached, by=by) for graph in waiting)
    return checked


def _graphs_again(assembly: Assembly) -> Mapping[str, ShippedGraph]:
    """Return the records of the graphs, emitted again where an earlier build has written the bundle."""
    if assembly.shipped.graphs:
        return assembly.shipped.graphs
    return {name: _shipped(assembly, lowering, emit(lowering)) for name, lowering in assembly.lowerings.items()}


def _shipped(assembly: Assembly, lowering: Lowering, built: Built) -> ShippedGraph:
    """Return the record of a graph with all its variants, as it lies in the bundle."""
    variants, folder = lowering.plan.target.plan, assembly.folder
    return shipped_graph(lowering, variants, built, folder, assembly.engines, assembly.loaded)


def close(assembly: Assembly) -> None:
    """Run the gates on the whole bundle, and record the sizes of its files and the drift.

    Raises:
        GateFailed: a promise does not hold.
    """
    record = assembly.record
    _note_sizes(assembly)
    _note_calls(assembly)
    record.drift |= {
        name: tuple(map(curve_of, assembly.receipts[name].get("drift", ()))) for name in assembly.lowerings
    }
    timed = dataclasses.replace(assembly.shipped, speed=tuple(record.speed))
    checked = dataclasses.replace(assembly, shipped=timed).check("end")
    enter_receipts(assembly.folder, checked.receipts)
    _note_sizes(assembly)


def _note_calls(assembly: Assembly) -> None:
    with read_bundle(assembly.folder) as bundle:
        assembly.record.call_bytes |= {name: _call_bytes(graph) for name, graph in bundle.manifest.graphs.items()}


def _call_bytes(graph: Graph) -> int:
    """Return the bytes of one call's inputs and outputs at the smallest bucket; a device may take them in fewer."""
    told = "" if graph.engine is None else graph.engine.built_with.get(CALL_BYTES, "")
    if told:
        return int(told)
    sizes, tensors = graph.artifacts[0].sizes, (*graph.inputs, *graph.outputs)
    return sum(tensor_bytes(static_shape(each.shape, sizes), each.dtype) for each in tensors)


def _note_sizes(assembly: Assembly) -> None:
    assembly.record.sizes |= {
        path.relative_to(assembly.folder).as_posix(): path.stat().st_size
        for path in sorted(assembly.folder.rglob("*"))
        if path.is_file()
    }


def _built_by(assembly: Assembly, graph: str) -> str:
    """Return the name of the builder that built the graph's engine without running it, else an empty string."""
    findings = assembly.record.findings
    return next((each.detail for each in findings if (each.gate, each.graph) == (BUILT, graph)), "")


def _unbuilt(assembly: Assembly, graph: str, reason: str) -> EngineRow:
    """Return the row of a graph without engines in the bundle; a builder may have built them elsewhere."""
    by = _built_by(assembly, graph)
    if by:
        return EngineRow(graph, "not built", reason, "built", by)
    return EngineRow(graph, "not built", reason, "linted", assembly.target.trial_absent())


def source_files(graphs: Mapping[str, Lowering]) -> list[Path]:
    """Return all files that the graphs come from."""
    return [file for graph in graphs.values() for file in graph.plan.original.source_files()]


def _sources_of(loaded: LoadedRecipe, graphs: Mapping[str, Lowering]) -> Sources:
    return Sources(
        checkpoint=checkpoint_hashes(source_files(graphs)),
        recipe=hashlib.sha256(loaded.text.encode()).hexdigest(),
        data={
            f"{key} {name}": digest
            for name, graph in graphs.items()
            for key, digest in graph.plan.original.data_digests().items()
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
