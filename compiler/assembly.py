"""The gates on what ships, and the bundle; the whole result is kept under one key."""

import dataclasses
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.bundle.finish import build_engines, unfinished
from compiler.bundle.manifest_of import GraphParts, bundle_files
from compiler.bundle.proof_files import proof_files
from compiler.bundle.staged_folder import staged, write_costs, write_files
from compiler.bundle.stand_in import StandIns
from compiler.cache.dependencies import hash_path
from compiler.cache.results import Code, StageResults
from compiler.cache.store import StageCache, default_folder
from compiler.cache.tool_versions import tool_versions
from compiler.errors import GateFailed, InternalError
from compiler.lowering.lowering import EDGE_CURE, Lowering
from compiler.recipe.callables import shown_path
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.streams import locate_files
from compiler.records.build_report import EngineRow, ParityRow, SpeedRow, StageReport, TaskRow
from compiler.records.drift_curves import curve_of
from compiler.records.gate_rows import GateRow, at_most
from compiler.report.build_record import BuildRecord
from compiler.report.progress import Progress, StageHandle
from compiler.stage_inputs import BundleInputs, key_of
from compiler.targets.base import Built
from compiler.targets.onnx_static import OnnxStatic
from compiler.verify import gates
from compiler.verify.differences import worst_of
from compiler.verify.drift import drift_gates
from compiler.verify.edges import EdgeCase, agreement_words
from compiler.verify.integer_kernels import check_integer_kernels, check_ratios, measure_ratios
from compiler.verify.invariance import POISONS
from compiler.verify.streams import StreamGates
from compiler.verify.utterances import UtteranceGates
from runtime_lite.executors.executor import ExecutorFactory, make_executor
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.costs import Cost
from runtime_lite.format.manifest import Sources
from runtime_lite.format.reader import read_bundle
from runtime_lite.runtime import Runtime
from runtime_lite.verify import verify_model

NOT_MEASURED = "not measured: engine not built"

NOT_OF_THE_DEVICE = "not measured: what runs here does not take the time of the device"


class Assembly:
    """Everything after the passes.

    Args:
        loaded: the recipe.
        out: the bundle.
        cache: results of earlier builds, or None.
        progress: shows the stages.
        graphs: lowered graphs by name.
        record: takes in what is measured.
    """

    def __init__(
        self,
        loaded: LoadedRecipe,
        out: Path,
        cache: StageCache | None,
        progress: Progress,
        graphs: Mapping[str, Lowering],
        record: BuildRecord,
    ) -> None:
        self.loaded, self.out, self.cache, self.progress, self.graphs = loaded, out, cache, progress, graphs
        self.record = record
        self.results = StageResults(cache, loaded.path.parent)
        self.target = next(iter(graphs.values())).target
        self.absent = self.target.absent()

    def finish(self) -> None:
        """Look the whole bundle up, or make and check it; then write it."""
        key = key_of(self._inputs())
        entry = self.results.find(key)
        with staged(self.out) as folder:
            if entry is not None:
                self._recall(entry, folder)
            else:
                content = self._make(folder)
                own = os.path.join(folder, "")  # its files are read by threads of the runtime at any time
                why = self.results.keep(key, content, self._code(), lambda path: path.startswith(own))
                if why:
                    self.progress.say(f"bundle {why}")
            self.record.engines = self._build_engines(folder)
            self.record.sizes |= {
                p.relative_to(folder).as_posix(): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()
            }
            receipts = json.loads((folder / "receipts.json").read_text())["parity"]
            self.record.drift |= {name: tuple(map(curve_of, each.get("drift", ()))) for name, each in receipts.items()}
            budget = self.loaded.recipe.gates.budget
            self.record.gates += gates.check_budget(budget, sum(self.record.sizes.values()), self.record.speed)

    def _build_engines(self, folder: Path) -> tuple[EngineRow, ...]:
        """Run the vendor's compiler where it is here; what came of every engine."""
        with read_bundle(folder) as bundle:
            waiting = unfinished(bundle.manifest)
        if waiting and self.absent is None:
            with self.progress.stage("", "engine") as handle:
                started = time.perf_counter()
                caches = (self.cache.folder if self.cache is not None else default_folder()) / "timing"
                self.record.speed += build_engines(self.target, folder, caches)
                self._report(handle, "engine", started, detail=f"engines of {len(waiting)} graphs, {self._checked()}")
            self._run_task(folder, self.target.executor)
            return tuple(EngineRow(graph, "built") for graph in waiting)
        return tuple(EngineRow(graph, "not built", reason) for graph, reason in waiting.items())

    def _checked(self) -> str:
        return "verified and timed" if self.target.times_here else "verified"

    def _checkpoints(self) -> dict[str, str]:
        """SHA-256 of every file that a graph comes from, by the name in the recipe's folder or here."""
        files = sorted({file for graph in self.graphs.values() for file in graph.original.source_files()})
        names = [file.name for file in files]
        shown = [file.name if names.count(file.name) == 1 else shown_path(file) for file in files]
        return {name: hash_path(file) for name, file in zip(shown, files, strict=True)}

    def _inputs(self) -> BundleInputs:
        """All that the bundle is made from."""
        recipe, places = self.loaded.recipe, self.loaded.places
        files = locate_files(places, recipe.data.verification.files, "data", "verification")
        if recipe.gates.task is not None:
            files += locate_files(places, recipe.gates.task.files, "gates", "task")
        return BundleInputs(
            next(iter(self.graphs.values())).original.surroundings,
            self.loaded.text,
            {name: graph.target_key for name, graph in self.graphs.items()},
            self._checkpoints(),
            tuple(map(hash_path, files)),
            self.absent or "",
        )

    def _code(self) -> Code:
        """Callables that the gates run, and whether the recipe names the files that they read."""
        code = {
            reference: named for graph in self.graphs.values() for reference, named in graph.original.code().items()
        }
        task = self.loaded.recipe.gates.task
        names = () if task is None else (task.recordings, task.decode, task.metric)
        return code | {name: task is not None and bool(task.files) for name in names}

    def _recall(self, entry: Path, folder: Path) -> None:
        """The bundle of an earlier build with the same key."""
        with self.progress.stage("", "bundle") as handle:
            started = time.perf_counter()
            found = json.loads((entry / "findings.json").read_text())
            self.record.parity += [ParityRow(**row) for row in found["parity"]]
            self.record.speed += [SpeedRow(**row) for row in found["speed"]]
            self.record.gates += [GateRow(**row) for row in found["gates"]]
            self.record.task = TaskRow(**found["task"]) if found["task"] else None
            for path in sorted((entry / "bundle").rglob("*")):
                if path.is_file():
                    target = folder / path.relative_to(entry / "bundle")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(path.read_bytes())
            self._report(handle, "bundle", started, cached=True)

    def _make(self, folder: Path) -> dict[str, bytes]:
        """Emit, verify and write everything below `folder`; what the cache keeps of it."""
        graphs: dict[str, GraphParts] = {}
        receipts: dict[str, Any] = {}
        for name, lowering in self.graphs.items():
            built = lowering.emit()
            write_files(folder, built.files)
            golden, receipts[name] = self._verify(folder, lowering, built)
            final = lowering.final()
            certificate, proofs = proof_files(name, tuple(lowering.proofs.values()), built, lossy=final.lossy)
            graphs[name] = GraphParts(
                final, lowering.parts(), lowering.buckets, lowering.target.name, built, certificate, golden, proofs
            )
        sources = Sources(
            checkpoint=self._checkpoints(),
            recipe=hashlib.sha256(self.loaded.text.encode()).hexdigest(),
            data={
                f"{key} {name}": digest
                for name, lowering in self.graphs.items()
                for key, digest in lowering.original.data_digests().items()
            },
        )
        files = bundle_files(self.loaded, graphs, {"parity": receipts}, sources, tool_versions())
        write_files(folder, files)
        has_engine = any(graph.built.engine is not None for graph in graphs.values())
        stand_ins = StandIns(self.target.open) if has_engine else None
        self._replay(folder, stand_ins or make_executor)
        if stand_ins is not None:
            limits = {n: g.gate.limits(lossy=g.final().lossy).max_abs for n, g in self.graphs.items()}
            for name, content in stand_ins.feeds(limits).items():
                graphs[name] = graphs[name].with_feeds(name, content)
        self._run_task(folder, stand_ins or make_executor)
        if self.record.task is not None:
            receipts["task"] = dataclasses.asdict(self.record.task)
        files = bundle_files(self.loaded, graphs, {"parity": receipts}, sources, tool_versions())
        write_files(folder, {name: content for name, content in files.items() if _differs(folder / name, content)})
        self._measure(folder, graphs)
        for name, graph in graphs.items():
            self._against_float(folder, name, graph)
        findings = {
            "parity": [dataclasses.asdict(row) for row in self.record.parity],
            "speed": [dataclasses.asdict(row) for row in self.record.speed],
            "gates": [dataclasses.asdict(row) for row in self.record.gates],
            "task": dataclasses.asdict(self.record.task) if self.record.task else None,
        }
        kept = {f"bundle/{p.relative_to(folder).as_posix()}": p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        return kept | {"findings.json": canonical_json(findings)}

    def _verify(self, folder: Path, lowering: Lowering, built: Built) -> tuple[bytes, dict[str, Any]]:
        """Parity, bucket agreement and invariance of one graph's artefacts."""
        name = lowering.name
        steps = lowering.original.steps(max(lowering.gate.chained_steps, 1))
        limits = lowering.gate.limits(lossy=lowering.final().lossy)
        check = (
            UtteranceGates(folder, lowering.final(), built.artifacts, limits, steps, self.target.open)
            if lowering.final().padded_axes
            else StreamGates(
                folder, name, built.artifacts, limits, steps, lowering.original.streams(), self.target.open
            )
        )
        with self.progress.stage(name, "verify") as handle:
            started = time.perf_counter()
            try:
                differences = check.check_parity(handle.advance)
            except GateFailed as error:
                raise lowering.explain(error, steps, limits, handle.advance) from None
            self.record.parity += gates.parity_rows(name, differences, limits)
            self.record.gates += gates.parity_gates(name, differences, limits)
            edges = self._edges(lowering, check, handle)
            self.record.gates += [GateRow("edges", name, case.kind, holds=True) for case in edges]
            buckets = check.check_buckets()
            self.record.gates += [
                at_most("buckets", name, each, limits.max_abs, apart) for each, apart in buckets.items()
            ]
            worst = worst_of(differences, limits)
            self._report(
                handle, "verify", started, name, max_abs=worst.max_abs, limit=worst.limit(limits),
                sqnr_db=worst.sqnr_db, detail=f"{worst.steps} {check.unit}; {agreement_words(edges)}",
            )  # fmt: skip
        drift = self._drift(lowering, check)
        with self.progress.stage(name, "invariance") as handle:
            started = time.perf_counter()
            padding = check.check_invariance()
            self.record.gates += [GateRow("invariance", name, each, holds=True) for each in padding]
            self._report(handle, "invariance", started, name, detail=f"poison {', '.join(POISONS)}: no bit changed")
        return check.golden(), {
            "compared": [dataclasses.asdict(d) for d in differences],
            "limit": limits.max_abs,
            "edges": {case.kind: case.unanswered or len(case.steps) for case in edges},
            "buckets": buckets,
            "invariance": padding,
            **drift,
        }

    def _edges(
        self, lowering: Lowering, check: UtteranceGates | StreamGates, handle: StageHandle
    ) -> Sequence[EdgeCase]:
        """The edge feeds that the artefacts answer as the original does.

        Raises:
            GateFailed: one is answered otherwise.
        """
        cases, limits = lowering.original.edges(), lowering.edge_limits(lowering.final())
        found = check.disagreement(cases, limits)
        if found is not None:
            cure = f"every pass held, so this is the runtime's optimiser: report it; {EDGE_CURE}"
            error = found.failure(lowering.name, "verify", cure)
            raise lowering.explain(error, found.case.steps, limits, handle.advance) from None
        return cases

    def _drift(self, lowering: Lowering, check: UtteranceGates | StreamGates) -> dict[str, Any]:
        """The curves of errors over many chained steps, for a graph that hands states on and a recipe that asks."""
        gate = lowering.gate.drift
        if gate is None or isinstance(check, UtteranceGates):
            return {}
        with self.progress.stage(lowering.name, "drift") as handle:
            started = time.perf_counter()
            curves = check.check_drift(gate, lowering.original.reference().run, handle.advance)
            self.record.gates += drift_gates(lowering.name, curves, gate)
            worst = max(curves, key=lambda curve: curve.growth)
            detail = f"{gate.steps} chained steps; {worst.tensor} grows most, {worst.growth:.2f} times"
            self._report(handle, "drift", started, lowering.name, detail=detail)
        return {"drift": [curve.to_json() for curve in curves]}

    def _replay(self, folder: Path, executors: ExecutorFactory) -> None:
        """Open the bundle as its user will, and run its golden feeds in every bucket."""
        with self.progress.stage("", "replay") as handle:
            started = time.perf_counter()
            with Runtime() as runtime:
                comparisons = list(verify_model(runtime.load(folder, executors)))
            failed = [c for c in comparisons if not c.holds]
            if failed:
                raise InternalError(f"the bundle does not replay its own golden feeds: {failed[0]}").at(stage="replay")
            on = "" if executors is make_executor else " on the ONNX graphs, no engine is built"
            self._report(handle, "replay", started, detail=f"{len(comparisons)} comparisons through runtime_lite{on}")

    def _run_task(self, folder: Path, executors: ExecutorFactory) -> None:
        gate = self.loaded.recipe.gates.task
        if gate is None:
            return
        name, lowering = next(iter(self.graphs.items()))
        with self.progress.stage(name, "task") as handle:
            started = time.perf_counter()
            reference = lowering.original.reference().run
            self.record.task = gates.run_task(
                self.loaded, gate, folder, name, reference, handle.advance,
                lambda chunks: lowering.original.check_apart(chunks, "gates", "task", "recordings"), executors,
            )  # fmt: skip
            self.record.gates += gates.task_gates(self.record.task, gate)
            detail = f"{self.record.task.metric} {self.record.task.reference:.4f} -> {self.record.task.bundle:.4f}"
            self._report(handle, "task", started, name, detail=detail)

    def _measure(self, folder: Path, graphs: Mapping[str, GraphParts]) -> None:
        with self.progress.stage("", "speed") as handle:
            started = time.perf_counter()
            runnable = {
                name: graph for name, graph in graphs.items() if graph.built.engine is None and self.target.times_here
            }
            for name, graph in runnable.items():
                self.record.speed += gates.measure_speed(folder, graph.built.artifacts, name)
            costs: dict[str, dict[str, Cost]] = {}
            for row in self.record.speed:
                costs.setdefault(row.graph, {})[row.sizes] = Cost(row.threads, row.p50_ms, row.p95_ms)
            write_costs(folder, costs)
            self._report(handle, "speed", started, detail="" if len(runnable) == len(graphs) else self._unmeasured())

    def _unmeasured(self) -> str:
        """What is said of speed where no graph runs here: which promises of the recipe nobody has looked at."""
        budget = self.loaded.recipe.gates.budget
        names = (
            "max_time_ratio",
            "max_size_ratio",
            *(("p95_ms",) if self.absent or not self.target.times_here else ()),
        )
        open_ones = [f"gates.budget.{name}" for name in names if getattr(budget, name, None) is not None]
        said = (
            NOT_MEASURED if self.absent else "measured with the engine" if self.target.times_here else NOT_OF_THE_DEVICE
        )
        return f"{said}; not checked: {', '.join(open_ones)}" if open_ones else said

    def _against_float(self, folder: Path, name: str, graph: GraphParts) -> None:
        """Show that what has been rounded runs on integers, and measure it beside the same graph before rounding."""
        lowering, gate = self.graphs[name], self.loaded.recipe.gates.budget
        if not graph.lowered.lossy or graph.target != OnnxStatic.name:
            return
        with self.progress.stage(name, "against float") as handle:
            started = time.perf_counter()
            files = [folder / emitted.file for emitted in graph.built.artifacts]
            detail = f"{max(check_integer_kernels(file, name) for file in files)} integer kernels"
            if gate is not None and (gate.max_time_ratio or gate.max_size_ratio):
                with tempfile.TemporaryDirectory() as scratch:
                    other = lowering.target.emit(lowering.exact(), lowering.buckets)
                    write_files(Path(scratch), other.files)
                    ratios = measure_ratios(folder, graph.built.artifacts, Path(scratch), other.artifacts)
                size = sum(map(len, graph.built.files.values())) / sum(map(len, other.files.values()))
                self.record.gates += check_ratios(gate, ratios, size, name)
                detail += f"; time {', '.join(map(str, ratios))} and size {size:.2f} of float"
            self._report(handle, "against float", started, name, detail=detail)

    def _report(self, handle: StageHandle, stage: str, started: float, graph: str = "", **found: Any) -> None:
        handle.finish(StageReport(graph, stage, time.perf_counter() - started, **found))


def _differs(path: Path, content: bytes) -> bool:
    return not path.is_file() or path.read_bytes() != content
