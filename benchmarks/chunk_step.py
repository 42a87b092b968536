"""Times one chunk step of a streaming recipe: our bundle beside PyTorch and the plain dynamic export, interleaved.

    python -m benchmarks.chunk_step --recipe full_cpu.yaml --bundle dist/streaming_asr-full_cpu

Every contender is a process of its own, so that its memory can be measured. They run in turn, round after round, so
that heat and other load affect all alike. All run the same step: one chunk with full windows. Ratios are per round; the
table shows their median and their 10th and 90th percentile. The floor is that of the bundle's graph (`floor.py`): the
larger of its arithmetic at the peak of this machine and of one pass over its weights, both measured in the same run. A
contender that fails is named in the table, and the exit code is 1.
"""

import argparse
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.floor import Machine, Work, to_floor, work_of
from benchmarks.serving.recorder import full_feed
from compiler.recipe.load import load_recipe

CALLS = 5
"""Calls per contender and round."""

WARM_UP = 8
SETTLE_S = 0.25
"""Pause before a contender's turn: worker threads of the one before spin for a while after their last step."""

OURS = "slipway bundle"
EXPORT = "dynamic export, ONNX Runtime"

Step = Callable[[], Any]


def main() -> None:
    """Run the comparison for each thread count and print tables; `--json` writes the numbers to a file."""
    options = _parse()
    load_recipe(options.recipe)
    command.graph_of_bundle(options.bundle, options.graph, streams=True)
    findings: dict[str, Any] = {"recipe": options.recipe, "threads": {}}
    console = Console(width=None if sys.stdout.isatty() else 150)
    with tempfile.TemporaryDirectory() as scratch:
        if EXPORT in options.contenders:
            findings["export_s"] = _export(options.recipe, scratch)
        for threads in options.threads:
            findings["threads"][threads] = _compare(options, threads, scratch)
            console.print(_table(options, threads, findings["threads"][threads]))
    if options.report is not None:
        console.print(_stage_table(json.loads(options.report.read_text())))
    if options.json is not None:
        options.json.write_text(json.dumps(findings, indent=1) + "\n")
    failed = {
        name: row["error"] for found in findings["threads"].values() for name, row in found.items() if "error" in row
    }
    if failed:
        raise command.ContenderFailed("; ".join(f"contender {name!r}: {error}" for name, error in failed.items()))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Chunk step: our bundle beside PyTorch and the plain dynamic export.")
    parser.add_argument("--recipe", default="full_cpu.yaml")
    parser.add_argument("--bundle", type=Path, default=Path("dist/streaming_asr-full_cpu"))
    parser.add_argument("--graph", default="encoder")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--report", type=Path, help="report of the build (build.py --report), for times by stage")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    return parser.parse_args()


def _export(recipe: str, scratch: str) -> float:
    """Write the plain dynamic export that all contenders start from, in a child process; return its seconds."""
    started = time.perf_counter()
    child = multiprocessing.get_context("spawn").Process(target=_export_child, args=(recipe, scratch))
    child.start()
    child.join()
    if child.exitcode:
        raise command.ContenderFailed(f"contender {EXPORT!r}: the export failed, as said above")
    return time.perf_counter() - started


def _export_child(recipe: str, scratch: str) -> None:
    import torch

    logging.disable(logging.ERROR)  # what the exporter says of packages that are not installed
    warnings.simplefilter("ignore")
    module, arguments, spec = _original(recipe)
    window = {name: torch.export.Dim(name) for name in _sizes(spec)}
    shapes = [{i: window[d] for i, d in enumerate(given.shape) if isinstance(d, str)} for given in spec.inputs.values()]
    with torch.no_grad():
        doubled = tuple(torch.cat([argument, argument]) for argument in arguments)
        program = torch.onnx.export(
            module, doubled, dynamo=True, dynamic_shapes=(shapes[0], tuple(shapes[1:])), opset_version=20, verbose=False
        )
    assert program is not None
    program.save(Path(scratch) / "dynamic.onnx")


def _original(recipe: str) -> tuple[Any, list[Any], Any]:
    """Return the recipe's module with its checkpoint, a feed with full caches, and the graph's record."""
    import torch

    from compiler.build.capture.torch_module import load_module

    loaded = load_recipe(recipe)
    spec = next(iter(loaded.recipe.graphs.values()))
    module = load_module(loaded, next(iter(loaded.recipe.graphs)), spec.source, "source")
    sizes = _sizes(spec)
    generator = torch.Generator().manual_seed(0)
    arguments = [
        torch.randn([d if isinstance(d, int) else sizes[d] for d in given.shape], generator=generator)
        for given in spec.inputs.values()
    ]
    return module, arguments, spec


def _sizes(spec: Any) -> dict[str, int]:
    """Return the axis sizes of one step: full windows, one row."""
    return {name: axis.window or axis.fixed or 1 for name, axis in spec.axes.items()}


# --- contenders: each returns a callable that runs one step, and the bytes of its model on disk


def eager(options: argparse.Namespace, scratch: str, threads: int) -> tuple[Step, int]:
    """Return a step of the original PyTorch module."""
    import torch

    torch.set_num_threads(threads)
    module, arguments, _ = _original(options.recipe)

    def step() -> Any:
        with torch.inference_mode():
            return module(*arguments)

    return step, sum(tensor.nbytes for tensor in module.state_dict().values())


def compiled(options: argparse.Namespace, scratch: str, threads: int) -> tuple[Step, int]:
    """Return a step with `torch.compile`, default settings and static shapes."""
    import torch

    torch.set_num_threads(threads)
    module, arguments, _ = _original(options.recipe)
    fast = torch.compile(module, dynamic=False)

    def step() -> Any:
        with torch.inference_mode():
            return fast(*arguments)  # type: ignore[no-untyped-call]

    return step, sum(tensor.nbytes for tensor in module.state_dict().values())


def exported(options: argparse.Namespace, scratch: str, threads: int) -> tuple[Step, int]:
    """Return a step of the dynamic export in ONNX Runtime with all its optimisations."""
    from compiler.graph.runners.session import open_session

    session = open_session(str(Path(scratch) / "dynamic.onnx"), optimize=True, threads=threads)
    sizes = _sizes(next(iter(load_recipe(options.recipe).recipe.graphs.values())))
    generator = np.random.default_rng(0)
    feed = {
        value.name: generator.standard_normal([sizes.get(d, d) for d in value.shape], dtype=np.float32)
        for value in session.get_inputs()
    }
    files = [path for path in Path(scratch).iterdir() if path.name.startswith("dynamic.onnx")]
    return lambda: session.run(None, feed), sum(path.stat().st_size for path in files)


def ours(options: argparse.Namespace, scratch: str, threads: int) -> tuple[Step, int]:
    """Return a step of the bundle's graph for one row, with full windows."""
    import runtime_lite
    from compiler.graph.runners.session import open_session

    with runtime_lite.read_bundle(options.bundle) as bundle:
        graph = bundle.manifest.graphs[options.graph]
        artifact = graph.artifacts[0]
        size = sum(bundle.manifest.files[name].bytes for name in (artifact.file, *artifact.files))
    session = open_session(str(options.bundle / artifact.file), optimize=True, threads=threads)
    feed = full_feed(options.graph, graph, artifact)
    return lambda: session.run(None, feed), size


def stream(options: argparse.Namespace, scratch: str, threads: int) -> tuple[Step, int]:
    """Return the same step through `runtime_lite`, with its checks, padding and states."""
    import runtime_lite

    model = runtime_lite.Runtime(threads=threads).load(options.bundle)
    graph = model.bundle.manifest.graphs[options.graph]
    opened = model.open_stream(options.graph)
    generator = np.random.default_rng(0)
    feed = {
        tensor.name: generator.standard_normal([1 if isinstance(d, str) else d for d in tensor.shape], dtype=np.float32)
        for tensor in graph.inputs
        if tensor.role == "data"
    }
    for _ in range(WARM_UP):
        opened.push(feed)
    return lambda: opened.push(feed), 0


CONTENDERS = {
    "PyTorch eager": eager,
    "torch.compile": compiled,
    EXPORT: exported,
    OURS: ours,
    "slipway bundle, runtime_lite stream": stream,
}


def _serve(name: str, options: argparse.Namespace, scratch: str, threads: int, pipe: Any) -> None:
    """Run a contender's process: load, warm up, then time `CALLS` steps at each request."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    try:
        before = _peak_mb()
        step, size = CONTENDERS[name](options, scratch, threads)
        for _ in range(WARM_UP):
            step()
        peak = _peak_mb()
    except Exception as error:  # noqa: BLE001 - the others are measured all the same, and the exit code says so
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {str(error).partition(chr(10))[0][:80]}")
        return
    pipe.send({"peak_mb": peak, "growth_mb": peak - before, "model_mb": size / 1e6})
    while pipe.recv():
        times = []
        for _ in range(CALLS):
            started = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - started))
        pipe.send(times)


def _peak_mb() -> float:
    """Return the peak resident memory of this process; getrusage would include the parent's."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def _compare(options: argparse.Namespace, threads: int, scratch: str) -> dict[str, Any]:
    """Run rounds of all contenders in turn and return the results."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, multiprocessing.connection.Connection] = {}
    found: dict[str, Any] = {}
    for name in options.contenders:  # one after the other: loading is heavy and must not disturb a neighbour
        pipe, far = context.Pipe()
        child = context.Process(target=_serve, args=(name, options, scratch, threads, far), daemon=True)
        child.start()
        far.close()  # so that a child that dies ends the wait for its answer
        try:
            answer = pipe.recv()
        except EOFError:
            child.join()
            answer = f"ended with code {child.exitcode} before its first step"
        found[name] = answer if isinstance(answer, dict) else {"error": answer}
        if isinstance(answer, dict):
            pipes[name] = pipe
    rounds: dict[str, list[float]] = {name: [] for name in pipes}
    for _ in range(options.rounds):
        for name, pipe in pipes.items():
            time.sleep(SETTLE_S)
            pipe.send(True)
            rounds[name].append(statistics.median(pipe.recv()))
    for name, pipe in pipes.items():
        pipe.send(False)
        found[name]["rounds_ms"] = rounds[name]
    time.sleep(4 * SETTLE_S)
    machine, work = Machine(threads), _work(options.bundle, options.graph)
    found["floor"] = {"ms": 1e3 * machine.floor_s(work), "told": machine.told(work)}
    return found


def _work(bundle: Path, graph: str) -> Work:
    """Return the arithmetic and the weights of a step of the bundle's smallest bucket."""
    import onnx_ir as ir

    import runtime_lite

    with runtime_lite.read_bundle(bundle) as opened:
        artifact = opened.manifest.graphs[graph].artifacts[0]
    return work_of(ir.load(bundle / artifact.file), artifact.sizes)


def _table(options: argparse.Namespace, threads: int, found: dict[str, Any]) -> Table:
    floor = found["floor"]
    table = Table(title=f"{options.recipe}, one chunk, batch 1, {threads} thread(s); floor {floor['told']}")
    columns = ("contender", "p50 ms", "ratio to export", "p10..p90", "to the floor", "grown MB", "model MB")
    for column in columns:
        table.add_column(column, justify="left" if column == "contender" else "right")
    reference = found.get(EXPORT, {}).get("rounds_ms")
    for name in options.contenders:
        row = found[name]
        if "error" in row:
            table.add_row(name, row["error"])
            continue
        ratios = [a / b for a, b in zip(row["rounds_ms"], reference, strict=True)] if reference else []
        row["ratio"] = _spread(ratios)
        table.add_row(
            name,
            f"{statistics.median(row['rounds_ms']):.2f}",
            f"{row['ratio'][1]:.3f}" if ratios else "",
            f"{row['ratio'][0]:.3f}..{row['ratio'][2]:.3f}" if ratios else "",
            to_floor(row["rounds_ms"], floor["ms"]),
            f"{row['growth_mb']:.0f}",
            f"{row['model_mb']:.1f}" if row["model_mb"] else "",
        )
    return table


def _spread(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the 10th percentile, the median and the 90th percentile."""
    if not ratios:
        return (0.0, 0.0, 0.0)
    low, middle, high = np.percentile(ratios, [10, 50, 90])
    return float(low), float(middle), float(high)


def _stage_table(report: dict[str, Any]) -> Table:
    table = Table(title="Build time by stage")
    table.add_column("stage")
    table.add_column("s", justify="right")
    for stage in report["stages"]:
        table.add_row(stage["stage"], f"{stage['seconds']:.2f}" + (" (cached)" if stage["cached"] else ""))
    return table


if __name__ == "__main__":
    command.run(main)
