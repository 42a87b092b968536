"""Runs the vendor's compiler on a bundle whose engines are not built, and enters them into its manifest.

The compiler writes elsewhere: whatever happens to it, the bundle is the one before or the finished one.
"""

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from compiler.base.pieces import write_files
from compiler.base.records.build_report import SpeedRow
from compiler.base.records.findings import Finding
from compiler.build.bundle.recipe_of import recipe_of
from compiler.build.bundle.staged_folder import check_bundle_or_nothing, copy_files, staged, write_costs
from compiler.build.bundle.target_of import target_of
from compiler.build.verify.gates.budget import check_budget
from compiler.build.verify.gates.engine_layers import engine_findings
from compiler.errors import GateFailed, InternalError, ToolchainAbsent
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
        simulated: whether the vendor's simulator has run them, in the place of the device.
    """

    speed: list[SpeedRow]
    not_run: str | None
    layers: Sequence[Finding] = ()
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
    layers = list(_layer_findings(folder, compiled))
    _enter(folder, engines, compiled)
    not_run = target.cannot_run()
    if not_run is not None:
        return Finished([], not_run, layers)
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
            return Finished([], None, layers, simulated=True)
        speed = [
            SpeedRow(timing.graph, timing.bucket, timing.p50_ms, timing.p95_ms, 1)
            for timing in bench_model(model, TIMED_RUNS, WARM_UP_RUNS)
        ]
    write_costs(folder, speed)
    return Finished(speed, None, layers)


def _layer_findings(folder: Path, engines: Mapping[str, Compiled]) -> Iterator[Finding]:
    """Yield the findings of the layer gate for engines with a description.

    Raises:
        GateFailed: a node computes in another type than planned.
    """
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    described = {file: engine for finished in engines.values() for file, engine in finished.described.items()}
    for name, graph in manifest.graphs.items():
        for artifact in graph.artifacts:
            if artifact.file in described:
                model = ir.load(folder / artifact.file)
                yield from engine_findings(name, bucket_name(artifact.sizes), model, described[artifact.file])


def _enter(folder: Path, made: Path, engines: Mapping[str, Compiled]) -> None:
    """Copy engines into the bundle and write the manifest that lists them."""
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    files = {name: (made / name).read_bytes() for each in engines.values() for name in each.files.values()}
    graphs = {
        name: graph if graph.engine is None else dataclasses.replace(graph, engine=_built(graph.engine.plan, engines))
        for name, graph in manifest.graphs.items()
    }
    entries = {name: FileEntry(len(c), hashlib.sha256(c).hexdigest()) for name, c in files.items()}
    finished = dataclasses.replace(manifest, graphs=graphs, files={**manifest.files, **entries})
    write_files(folder, {**files, MANIFEST_FILE: json_from_manifest(finished)})  # its names are checked first


def _built(plan: str, engines: Mapping[str, Compiled]) -> Engine:
    if plan not in engines:
        raise InternalError(f"expected engines of {plan}, got those of {sorted(engines)}")
    return Engine("built", None, plan, engines[plan].files, engines[plan].built_with)
