"""Compares choices of float32 nodes: by this toolchain, by a threshold on values, and by a prefix found by bisection.

    python -m benchmarks.precision --recipe shifted_t4.yaml --task
    python -m benchmarks.precision --recipe full_cpu.yaml \
        --set 'data.calibration={feeds: "examples.streaming_asr.data:random_calibration", count: 2}'

All contenders get the same float32 graph, the recipe's passes up to the first that rounds on purpose or rescales, and
the same calibration data; noise is measured on the verification data, which none of them has seen, in half precision
that is rounded behind every node. `--task` decodes all recordings of the task with every contender.

- naive: every node in half precision.
- threshold: a node stays if a value that it reads or makes exceeds 512 (the rule of ModelOpt AutoCast).
- prefix: the shortest run of nodes, from the first on in graph order, that stays in float32 so that noise is at most
  that of `lower_precision`; found by bisection (as Polygraphy's debug precision does).
"""

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.base.cache.store import StageCache
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.build.verify.gates.task import task_functions
from compiler.calib.magnitudes import HALF_MAX, largest_magnitudes
from compiler.calib.watched_streams import noise_between
from compiler.errors import DataError
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Lowered
from compiler.numerics.precision.float32_nodes import touches_float
from compiler.numerics.precision.write import write_types
from compiler.passes import make_pass
from compiler.passes.lower_precision import LowerPrecision
from compiler.passes.rescale_residuals import RescaleResiduals
from compiler.recipe.load import LoadedRecipe, load_recipe
from compiler.recipe.user_code.callables import importable
from compiler.targets import placements

HALF = ir.DataType.FLOAT16
THRESHOLD = 512.0


@dataclasses.dataclass
class Contender:
    """One way to choose float32 nodes.

    Attributes:
        name: name of the row.
        lowered: the graph with its types.
        float32: nodes that stay in float32.
        seconds: duration of the search.
        runs: number of runs over all calibration data.
    """

    name: str
    lowered: Lowered
    float32: int
    seconds: float
    runs: int


def main() -> None:
    """Compare, print a table, and with `--json` keep the numbers."""
    options = _parse()
    loaded = load_recipe(options.recipe, options.overrides)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory() as scratch:
        name, spec = next(iter(loaded.recipe.graphs.items()))
        cache = StageCache(options.cache or Path(scratch))
        original = original_of(loaded, name, spec, cache, Progress(Console(quiet=True)))
        plain = dataclasses.replace(original.start(), calibration=original.calibration())
        passes = [make_pass(each.name, each.options, placements()) for each in spec.passes]
        for made in passes:
            if made.lossy or isinstance(made, RescaleResiduals):
                break
            plain = made.apply(plain).lowered
        lower = next((made for made in passes if isinstance(made, LowerPrecision)), LowerPrecision())
        if plain.calibration is None:
            raise DataError(f"{options.recipe}: expected data.calibration, got none", cure="give the recipe some")
        total = sum(touches_float(node) for node in plain.model.graph)
        console.print(f"{options.recipe}: {total} nodes with real numbers, {len(plain.calibration.streams)} streams")
        verification = original.streams()[: options.streams]
        rows = []
        for contender in _contenders(plain, lower, console):
            noise = noise_between(plain, contender.lowered, verification)
            row: dict[str, Any] = {**dataclasses.asdict(dataclasses.replace(contender, lowered=None)), "noise": noise}  # type: ignore[arg-type]
            if options.task:
                row |= _task(loaded, contender.lowered)
            rows.append(row)
            console.print(_describe(row, total))
        if options.task:
            console.print(f"float32: {_task(loaded, plain)}")
        console.print(_table(rows, total))
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1, default=str) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Float32 nodes: chosen, by threshold, by bisection.")
    parser.add_argument("--recipe", default="shifted_t4.yaml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--streams", type=int, default=6, help="verification streams that noise is measured on")
    parser.add_argument("--task", action="store_true", help="decode all recordings with every contender")
    parser.add_argument("--cache", type=Path, help="captured graphs of earlier builds")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _contenders(plain: Lowered, lower: LowerPrecision, console: Console) -> Iterator[Contender]:
    """Yield each typed graph as soon as it is found."""
    assert plain.calibration is not None
    streams = plain.calibration.streams
    nodes = [node for node in plain.model.graph if touches_float(node)]
    states = {f"state {state.input}" for state in plain.states}
    started = time.perf_counter()
    magnitudes, _ = largest_magnitudes(plain, streams)
    watched = time.perf_counter() - started
    first = next(
        (value for node in nodes for value in node.outputs if magnitudes.get(str(value.name), 0) > HALF_MAX), None
    )
    if first is not None:
        console.print(
            f"first value beyond half precision: {first.name}, {magnitudes[str(first.name)]:.6g}, of "
            f"{graphs.source_of(first.producer())}"
        )
    yield Contender("naive", write_types(plain, (), HALF), 0, 0.0, 0)
    large = {str(node.name) for node in nodes if _exceeds(node, magnitudes)}
    kept = large | {name for name in states if magnitudes.get(name.removeprefix("state "), 0.0) > THRESHOLD}
    yield Contender("threshold 512", write_types(plain, kept, HALF), len(large), watched, 1)
    ours = _timed("lower_precision", lambda: lower.apply(plain))
    goal = max(noise_between(plain, ours.lowered, streams).values())
    yield _by_prefix(plain, [str(node.name) for node in nodes], states, goal)
    yield ours
    copy = dataclasses.replace(plain, model=graphs.clone(plain.model))
    started = time.perf_counter()
    rescaled = RescaleResiduals().apply(copy).lowered
    seconds = time.perf_counter() - started
    both = _timed("rescale_residuals, lower_precision", lambda: lower.apply(rescaled))
    yield dataclasses.replace(both, seconds=both.seconds + seconds, runs=both.runs + 1)


def _exceeds(node: ir.Node, magnitudes: dict[str, float]) -> bool:
    values = [str(value.name) for value in (*node.inputs, *node.outputs) if value is not None]
    weights = [graphs.array_of(value) for value in node.inputs]
    large = any(array is not None and array.dtype.kind == "f" and np.any(np.isfinite(array) & (abs(array) > HALF_MAX))
                for array in weights)  # fmt: skip
    return (large and node.op_type != "Where") or any(magnitudes.get(name, 0.0) > THRESHOLD for name in values)


def _by_prefix(plain: Lowered, names: list[str], states: set[str], goal: float) -> Contender:
    """Find by bisection how many of the first nodes must stay in float32; states stay if any node does."""
    assert plain.calibration is not None
    started, runs = time.perf_counter(), 0
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        tried = write_types(plain, {*names[:middle], *states}, HALF)
        runs += 1
        good = max(noise_between(plain, tried, plain.calibration.streams).values()) <= goal
        low, high = (low, middle) if good else (middle + 1, high)
    lowered = write_types(plain, {*names[:low], *states}, HALF)
    return Contender("prefix by bisection", lowered, low, time.perf_counter() - started, runs)


def _timed(name: str, search: Callable[[], Any]) -> Contender:
    started = time.perf_counter()
    outcome = search()
    seconds = time.perf_counter() - started
    runs = int(outcome.detail.split(" runs over")[0].split()[-1])
    return Contender(name, outcome.lowered, len(outcome.precision), seconds, runs)


def _task(loaded: LoadedRecipe, lowered: Lowered) -> dict[str, Any]:
    """Return the task's metric over all recordings."""
    gate = loaded.recipe.gates.task
    assert gate is not None, "the recipe has no task gate"
    functions = task_functions(loaded, gate)
    with importable(loaded.search_path()), np.errstate(invalid="ignore"):
        references, texts = [], []
        for recording in functions["recordings"]():
            runner = runner_of(lowered)
            texts.append(functions["decode"]([runner.step(chunk) for chunk in recording.chunks]))
            references.append(recording.reference)
        return {"metric": functions["metric"](references, texts)}


def _describe(row: dict[str, Any], total: int) -> str:
    return f"{row['name']}: {row['float32']} of {total} in float32, {_decibels(max(row['noise'].values()))} dB"


def _decibels(share: float) -> str:
    return f"{-10.0 * math.log10(share):.1f}" if 0.0 < share < math.inf else "not a number"


def _table(rows: list[dict[str, Any]], total: int) -> Table:
    table = Table(title=f"float32 nodes of {total}; noise on data that nobody has seen, worst output or state")
    for column in ("choice", "float32 nodes", "worst SQNR, dB", "task metric", "runs over the data", "search, s"):
        table.add_column(column, justify="left" if column == "choice" else "right")
    for row in rows:
        metric = f"{row['metric']:.5f}" if "metric" in row else ""
        worst = _decibels(max(row["noise"].values()))
        table.add_row(row["name"], str(row["float32"]), worst, metric, str(row["runs"]), f"{row['seconds']:.1f}")
    return table


if __name__ == "__main__":
    command.run(main)
