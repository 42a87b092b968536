"""Runs the vendor's compiler on a bundle whose engines are not built, and enters them into its manifest.

The compiler runs in a process of its own and writes elsewhere: whatever happens to it, the bundle is the one before or
the finished one.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from compiler.bundle.staged_folder import staged, write_costs, write_files
from compiler.errors import GateFailed, InternalError, Refused, ToolchainAbsent
from compiler.recipe.gates import BudgetGate
from compiler.records.build_report import SpeedRow
from compiler.targets.tensorrt.builder import REFUSED, in_own_process, probe_builder
from compiler.verify.gates import check_budget
from runtime_lite.bench import bench_model
from runtime_lite.errors import BadInput, EngineAbsent
from runtime_lite.executors.cuda import probe, signal_name
from runtime_lite.format.costs import Cost
from runtime_lite.format.manifest import MANIFEST_FILE, Engine, FileEntry, Manifest
from runtime_lite.format.manifest_json import json_from_manifest
from runtime_lite.format.reader import read_bundle
from runtime_lite.runtime import Runtime
from runtime_lite.verify import verify_model

TIMED_RUNS, WARM_UP_RUNS = 100, 10


def unfinished(manifest: Manifest) -> dict[str, str]:
    """Why the engine of a graph is not built, by graph."""
    return {
        name: str(graph.engine.reason)
        for name, graph in manifest.graphs.items()
        if graph.engine is not None and graph.engine.status != "built"
    }


def finish_bundle(path: Path, timing_caches: Path) -> list[SpeedRow]:
    """Build the engines of a bundle, verify and time them on this machine, and put the finished bundle in its place.

    Args:
        path: a bundle directory with engines that are not built.
        timing_caches: folder of the builder's timing caches.

    Raises:
        BadInput: the bundle is a `.tar` file.
        ToolchainAbsent: this machine has no device or no builder; the bundle is untouched.
        Refused: the builder refuses a graph; the bundle is untouched.
        GateFailed: an engine does not reproduce the recorded outputs, or is too slow; the bundle is untouched.
    """
    if not path.is_dir():
        raise BadInput(f"{path}: expected a bundle directory to finish, got a file; unpack it first")
    require_toolchain(str(path))
    with staged(path) as folder:
        shutil.copytree(path, folder, dirs_exist_ok=True)
        speed = build_engines(folder, timing_caches)
        with read_bundle(folder) as bundle:
            recipe = yaml.safe_load(bundle.read_file(bundle.manifest.recipe))
        budget = (recipe.get("gates") or {}).get("budget")
        size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        check_budget(BudgetGate.model_validate(budget) if budget else None, size_bytes, speed)
        return speed


def require_toolchain(where: str) -> None:
    """Refuse on a machine that has no device or no builder.

    Raises:
        ToolchainAbsent: says what is missing.
    """
    try:
        probe()
        probe_builder()
    except EngineAbsent as error:
        raise ToolchainAbsent(
            f"{where}: {str(error).split('; ')[0]}",
            cure="run it on the machine with the device; `build.py doctor` lists what is missing here",
        ) from None


def build_engines(folder: Path, timing_caches: Path) -> list[SpeedRow]:
    """Build and enter the engines of a bundle in place, then verify and time them.

    Raises:
        Refused: the builder refuses a graph.
        GateFailed: an engine does not reproduce the recorded outputs, or is too slow.
    """
    with _built(folder, timing_caches) as (made, engines):
        _enter(folder, made, engines)
    with Runtime() as runtime:
        model = runtime.load(folder, allow_host_code=True)  # of the library that has just built it here
        failed = [comparison for comparison in verify_model(model) if not comparison.holds]
        if failed:
            raise GateFailed(
                f"expected engines that reproduce the recorded outputs, got {failed[0]}",
                cure="run tensorrt/verify_t4.py of the bundle, and loosen the lossy limits if its figures allow it",
            )
        speed = [
            SpeedRow(timing.graph, timing.bucket, timing.p50_ms, timing.p95_ms, 1)
            for timing in bench_model(model, TIMED_RUNS, WARM_UP_RUNS)
        ]
    costs: dict[str, dict[str, Cost]] = {}
    for row in speed:
        costs.setdefault(row.graph, {})[row.sizes] = Cost(row.threads, row.p50_ms, row.p95_ms)
    write_costs(folder, costs)
    return speed


@contextlib.contextmanager
def _built(folder: Path, timing_caches: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Run the builder; where its files lie, and what it says about them."""
    with tempfile.TemporaryDirectory(prefix="slipway-engines-") as scratch:
        options = ["--bundle", str(folder), "--out", scratch, "--timing-cache", str(timing_caches)]
        done = in_own_process(options)
        said = (done.stderr.strip().splitlines() or [""])[-1].removeprefix("error: ")
        if done.returncode == REFUSED:
            raise Refused(said, cure="rebuild the bundle with other options of the target")
        if done.returncode == EngineAbsent.exit_code:
            raise ToolchainAbsent(said)
        if done.returncode < 0:
            raise Refused(
                f"expected TensorRT to build the engines, got a process ended by {signal_name(done.returncode)}",
                cure="check the driver and the version of TensorRT with `build.py doctor`",
            )
        if done.returncode:
            raise InternalError(f"the builder ended with {done.returncode}: {said}")
        made = Path(scratch)
        yield made, json.loads((made / "built.json").read_text(encoding="utf-8"))


def _enter(folder: Path, made: Path, engines: Mapping[str, Mapping[str, Any]]) -> None:
    """Copy engines into the bundle and write the manifest that lists them."""
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    files = {name: (made / name).read_bytes() for each in engines.values() for name in each["files"].values()}
    graphs = {
        name: graph
        if graph.engine is None
        else dataclasses.replace(
            graph,
            engine=Engine("built", None, graph.engine.plan, **_of(engines, graph.engine.plan)),
        )
        for name, graph in manifest.graphs.items()
    }
    entries = {name: FileEntry(len(c), hashlib.sha256(c).hexdigest()) for name, c in files.items()}
    finished = dataclasses.replace(manifest, graphs=graphs, files={**manifest.files, **entries})
    write_files(folder, {**files, MANIFEST_FILE: json_from_manifest(finished)})  # its names are checked first


def _of(engines: Mapping[str, Mapping[str, Any]], plan: str) -> dict[str, Any]:
    if plan not in engines:
        raise InternalError(f"expected engines of {plan}, got those of {sorted(engines)}")
    return dict(engines[plan])
