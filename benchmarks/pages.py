"""Measures the time that large pages for weights save per step, and the memory that they take.

    python -m benchmarks.pages dist/streaming_asr-full_cpu

Every contender is a process of its own, in turns: a bare session of the bundle's graph file and the same through
`runtime_lite`, each with pages of 4 KiB and with pages of 2 MiB (`runtime_lite/executors/pages.py`). Steps are those of
full rows; ratios are to the same without large pages, round by round. Memory is what is resident behind the steps.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.memory import mb_of
from benchmarks.serving.recorder import full_feed
from benchmarks.serving.rounds import ratios, spread
from runtime_lite import Runtime, read_bundle
from runtime_lite.bench import bucket_call
from runtime_lite.executors.pages import SWITCH, large_pages
from runtime_lite.format.manifest import Artifact, Graph

CONTENDERS = ("bare session", "runtime_lite")


class Figures(NamedTuple):
    """Results of one process.

    Attributes:
        opened_ms: time from opening the file to the end of the first step, in ms.
        step_ms: median time of a step, in ms.
        resident_mb: resident memory after all steps, in MB.
    """

    opened_ms: float
    step_ms: float
    resident_mb: float


def main() -> None:
    """Measure and print a table for each number of rows."""
    parser = argparse.ArgumentParser(description="Steps and memory with large pages under the weights.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--graph", help="the only one by default")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each contender")
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    graph = command.graph_of_bundle(options.bundle, options.graph)
    for artifact in (graph.artifacts[0], graph.artifacts[-1]):
        found = measured(options.bundle, options.graph, artifact.sizes, options.rounds, options.calls)
        Console().print(_table(artifact, found))


def measured(
    bundle: Path, name: str | None, sizes: Mapping[str, int], rounds: int, calls: int
) -> dict[tuple[str, bool], list[Figures]]:
    """Return the results of every contender, without and with large pages, by round."""
    found: dict[tuple[str, bool], list[Figures]] = {(each, on): [] for each in CONTENDERS for on in (False, True)}
    for _ in range(rounds):
        for (each, is_on), figures in found.items():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool, command.contender(each):
                figures.append(pool.submit(_figures, each, is_on, bundle, name, dict(sizes), calls).result())
    return found


def _figures(contender: str, is_on: bool, bundle: Path, name: str | None, sizes: dict[str, int], calls: int) -> Figures:
    os.environ[SWITCH] = str(int(is_on))
    with read_bundle(bundle) as opened:
        named, graph = next((each, record) for each, record in opened.manifest.graphs.items() if name in (None, each))
    artifact = next(each for each in graph.artifacts if each.sizes == sizes)
    begin = time.perf_counter()
    with Runtime() as runtime:
        call = (
            bucket_call(runtime.load(bundle).runner(named), artifact)
            if contender == "runtime_lite"
            else _bare_call(bundle, named, graph, artifact)
        )
        call()
        opened_ms = (time.perf_counter() - begin) * 1e3
        times = []
        for _ in range(calls):
            start = time.process_time_ns()
            call()
            times.append((time.process_time_ns() - start) / 1e6)
        return Figures(opened_ms, statistics.median(times), mb_of("smaps_rollup", "Rss"))


def _bare_call(bundle: Path, name: str, graph: Graph, artifact: Artifact) -> Callable[[], object]:
    feed = full_feed(name, graph, artifact)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    file = bundle / artifact.file
    with large_pages(sum(each.stat().st_size for each in file.parent.iterdir())):
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def _table(artifact: Artifact, found: Mapping[tuple[str, bool], list[Figures]]) -> Table:
    at = ", ".join(f"{axis}={size}" for axis, size in artifact.sizes.items())
    table = Table(title=f"steps at {at}; computing time of one thread")
    for column in ("contender", "pages", "step, ms", "ratio", "opened, ms", "resident, MB"):
        table.add_column(column, justify="left" if column in ("contender", "pages") else "right")
    for (contender, is_on), figures in found.items():
        steps = [each.step_ms for each in figures]
        table.add_row(
            contender,
            "2 MiB" if is_on else "4 KiB",
            spread(steps),
            spread(ratios(steps, [each.step_ms for each in found[contender, False]]), 3),
            spread([each.opened_ms for each in figures], 0),
            spread([each.resident_mb for each in figures], 1),
        )
    return table


if __name__ == "__main__":
    command.run(main)
