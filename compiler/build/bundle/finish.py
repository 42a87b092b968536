"""Builds the missing engines of a bundle with the vendor's compiler, and enters them into the bundle's manifest.

The compiler writes elsewhere: whatever happens to it, the bundle is the one before or the finished one.
"""

import dataclasses
import hashlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from compiler.base.pieces import Content, write_files
from compiler.base.records.build_report import SpeedRow
from compiler.base.records.findings import Finding
from compiler.build.bundle.recipe_of import recipe_of
from compiler.build.bundle.staged_folder import check_bundle_or_nothing, copy_files, staged, write_costs
from compiler.build.bundle.target_of import target_of
from compiler.build.verify.gates.budget import check_budget
from compiler.build.verify.gates.engine_layers import engine_findings
from compiler.errors import GateFailed, InternalError, Refused, ToolchainAbsent
from compiler.recipe.gates import BudgetGate
from compiler.targets.base import Compiled, Target, missing
from runtime_lite.bench import bench_model
from runtime_lite.errors import FRONT_DOOR, BadInput
from runtime_lite.format.manifest import MANIFEST_FILE, SCHEMA_VERSION, Engine, FileEntry, Manifest, bucket_name
from runtime_lite.format.manifest_json import json_from_manifest
from runtime_lite.format.reader import read_bundle
from runtime_lite.runtime import Runtime
from runtime_lite.verify import verify_model

TIMED_RUNS, WARM_UP_RUNS = 100, 10

SCRATCH = "slipway-engines-"
"""How the names of folders begin in which engines lie before they are entered into a bundle."""


def unfinished(manifest: Manifest) -> dict[str, str]:
    """Return, by graph, why its engine is not built."""
    return {
        name: str(graph.engine.reason)
        for name, graph in manifest.graphs.items()
        if graph.engine is not None and graph.engine.status != "built"
    }


@dataclasses.dataclass(frozen=True)
class Finished:
    """The measurements of built engines.

    Attributes:
        speed: their times; none of those that were not run, or whose times mean nothing here.
        not_run: the reason why engines were not run; None where they ran and gave the recorded outputs.
        layers: findings about the layers of those engines whose compiler describes them.
        choices: for every alternative of the target a sentence on the graphs whose engines were built from it.
        simulated: whether the vendor's simulator has run them, in the place of the device.
    """

    speed: list[SpeedRow]
    not_run: str | None
    layers: Sequence[Finding] = ()
    choices: Sequence[str] = ()
    simulated: bool = False


def finish_bundle(path: Path, caches: Path) -> Finished:
    """Build the engines of a bundle, verify and time them on this machine, and replace the bundle by the finished one.

    Args:
        path: a bundle directory with engines that are not built.
        caches: folder of caches for the next run of the vendor's compiler.

    Raises:
        BadInput: the bundle is a `.tar` file, of an older schema, or of a target that is not known here; the bundle is
            untouched.
        ToolchainAbsent: this machine has no device or no builder; the bundle is untouched.
        Refused: the builder refuses a graph; the bundle is untouched.
        GateFailed: a node of an engine computes in another type than planned, an engine does not reproduce the
            recorded outputs, or is too slow; the bundle is untouched.
    """
    if not path.is_dir():
        raise BadInput(f"{path}: expected a bundle directory to finish, got a file; unpack it first")
    with read_bundle(path) as bundle:
        version = bundle.manifest.schema_version
        if version != SCHEMA_VERSION:
            expected = f"a bundle of schema {SCHEMA_VERSION} to finish"
            raise BadInput(f"{path}: expected {expected}, got schema {version}; rebuild it")
        target = target_of(bundle)
    require_toolchain(target, str(path))
    with staged(path, check_bundle_or_nothing) as folder:
        copy_files(path, folder)
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
            finished = build_engines(target, folder, Path(scratch) / "engines", caches)
        with read_bundle(folder) as bundle:
            recipe = recipe_of(bundle)
        budget = (recipe.get("gates") or {}).get("budget")
        size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        check_budget(BudgetGate.model_validate(budget) if budget else None, size_bytes, finished.speed)
        return finished


def require_toolchain(target: Target, where: str) -> None:
    """Refuse a machine that has no device or no builder.

    Raises:
        ToolchainAbsent: a part is missing; the message names it.
    """
    lacking = missing(target.parts())
    if lacking is not None:
        raise ToolchainAbsent(
            f"{where}: {lacking}",
            cure=f"run it on the machine with the device; `{FRONT_DOOR} doctor` lists what is missing here",
        )


def build_engines(target: Target, folder: Path, engines: Path, caches: Path) -> Finished:
    """Build the engines of a bundle in place, then verify them, and time them where a time is meaningful.

    Layers that the compiler describes are checked against the graphs first. Where the machine that builds engines
    cannot run them, they are neither verified nor timed.

    Args:
        target: target whose compiler is installed.
        folder: folder of the bundle.
        engines: a folder for engines, with those that a trial has built; it need not exist.
        caches: folder of caches for the next run of the vendor's compiler.

    Raises:
        Refused: the builder refuses a graph.
        GateFailed: a node computes in another type than planned, or an engine does not reproduce the recorded outputs.
    """
    compiled = target.compile(folder, engines, caches)
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    layers = list(_layer_findings(manifest, folder, compiled))
    _enter(folder, engines, compiled)
    not_run = target.cannot_run()
    if not_run is not None:
        return Finished([], not_run, layers)
    speed = _measured(target, folder)
    if not target.times_here:
        return Finished([], None, layers, simulated=True)
    choices = []
    for name, files in target.alternatives(folder).items():
        speed, choice = _with_faster(target, folder, caches, name, files, speed)
        choices.append(choice)
    write_costs(folder, speed)
    return Finished(speed, None, layers, choices)


def _measured(target: Target, folder: Path) -> list[SpeedRow]:
    """Compare the engines of a bundle with the recorded outputs; return their times, if these are meaningful here.

    Raises:
        GateFailed: an engine does not reproduce the recorded outputs.
    """
    with Runtime() as runtime:
        model = runtime.load(folder, target.executor)
        failed = [comparison for comparison in verify_model(model) if not comparison.holds]
        if failed:
            look = f"run {target.trial} of the bundle, and " if target.trial else ""
            raise GateFailed(
                f"expected engines that reproduce the recorded outputs, got {failed[0]}",
                cure=f"{look}loosen the lossy limits if its figures allow it",
            )
        if not target.times_here:
            return []
        return [
            SpeedRow(timing.graph, timing.bucket, timing.p50_ms, timing.p95_ms, 1)
            for timing in bench_model(model, TIMED_RUNS, WARM_UP_RUNS)
        ]


def _with_faster(
    target: Target, folder: Path, caches: Path, name: str, files: Mapping[str, Content], planned: list[SpeedRow]
) -> tuple[list[SpeedRow], str]:
    """Build the engines of an alternative, and put those into the bundle that hold the gates and are faster.

    Args:
        target: target whose compiler is installed.
        folder: folder of the bundle, with engines.
        caches: as in `build_engines`.
        name: of the alternative.
        files: the graph files that differ.
        planned: times of the engines in the bundle.

    Returns:
        The times of the engines that the bundle then has, and a sentence.
    """
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
        source, trial, engines = (Path(scratch) / part for part in ("source", "trial", "engines"))
        copy_files(folder, source)
        write_files(source, files)
        copy_files(folder, trial)
        try:
            compiled = {
                plan: dataclasses.replace(each, built_with={**each.built_with, "computes in": name})
                for plan, each in target.compile(source, engines, caches).items()
            }
            list(_layer_findings(manifest, source, compiled))
            _enter(trial, engines, compiled)
            speed = _measured(target, trial)
        except (Refused, GateFailed) as error:
            return planned, f"{name} is not taken: {error.message}"
        faster = faster_graphs(planned, speed)
        _enter(folder, engines, compiled, faster)
    rows = [row for row in planned if row.graph not in faster] + [row for row in speed if row.graph in faster]
    sums = [f"{graph} {fast:.3f} ms against {slow:.3f} ms" for graph, (fast, slow) in faster.items()]
    return rows, f"{name} is faster and taken for {', '.join(sums)}" if sums else f"{name} is not faster"


def faster_graphs(planned: Sequence[SpeedRow], other: Sequence[SpeedRow]) -> dict[str, tuple[float, float]]:
    """Return the graphs whose other engines are faster: their medians, added over all buckets, are less.

    Args:
        planned: times of the engines of the graphs as planned.
        other: times of other engines of the same graphs and buckets.

    Returns:
        By graph, the sums of the other engines and of the planned ones, in milliseconds.
    """
    sums: dict[str, list[float]] = {}
    for place, rows in enumerate((other, planned)):
        for row in rows:
            sums.setdefault(row.graph, [0.0, 0.0])[place] += row.p50_ms
    return {graph: (fast, slow) for graph, (fast, slow) in sums.items() if fast < slow}


def _layer_findings(manifest: Manifest, folder: Path, engines: Mapping[str, Compiled]) -> Iterator[Finding]:
    """Yield the findings of the layer gate for engines with a description.

    Args:
        manifest: of the bundle.
        folder: where the graph files lie that the engines were built from.
        engines: the engines, by the plan's file.

    Raises:
        GateFailed: a node computes in another type than planned.
    """
    described = {file: engine for finished in engines.values() for file, engine in finished.described.items()}
    for name, graph in manifest.graphs.items():
        for artifact in graph.artifacts:
            if artifact.file in described:
                model = ir.load(folder / artifact.file)
                yield from engine_findings(name, bucket_name(artifact.sizes), model, described[artifact.file])


def _enter(folder: Path, made: Path, engines: Mapping[str, Compiled], names: Collection[str] | None = None) -> None:
    """Copy engines into the bundle and write the manifest that lists them: those of some graphs, or of all."""
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    built = {
        name: _built(graph.engine.plan, engines)
        for name, graph in manifest.graphs.items()
        if graph.engine is not None and (names is None or name in names)
    }
    parts = [name for engine in built.values() for name in (*engine.files.values(), *engines[engine.plan].besides)]
    files = {name: (made / name).read_bytes() for name in parts}
    graphs = {
        name: dataclasses.replace(graph, engine=built.get(name, graph.engine))
        for name, graph in manifest.graphs.items()
    }
    entries = {name: FileEntry(len(c), hashlib.sha256(c).hexdigest()) for name, c in files.items()}
    finished = dataclasses.replace(manifest, graphs=graphs, files={**manifest.files, **entries})
    write_files(folder, {**files, MANIFEST_FILE: json_from_manifest(finished)})  # its names are checked first


def _built(plan: str, engines: Mapping[str, Compiled]) -> Engine:
    if plan not in engines:
        raise InternalError(f"expected engines of {plan}, got those of {sorted(engines)}")
    return Engine("built", None, plan, engines[plan].files, engines[plan].built_with)
