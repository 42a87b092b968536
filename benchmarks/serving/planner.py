"""Compares the streams that the planner promises on this machine with those that it can really serve.

A chunk is late that is answered after the next one came. What is planned is let in, and no chunk of it is late; what is
measured is the limit, where at most 1 % are: one late chunk would say more about the neighbours of this machine than
about its capacity. A machine changes from minute to minute: costs are measured before every trial.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.serving.driven import serve_streams
from benchmarks.serving.rounds import ratios, spread
from runtime_lite.__main__ import main
from runtime_lite.bench_served import bench_served
from runtime_lite.format.costs import Cost
from runtime_lite.format.reader import read_bundle
from runtime_lite.load_test.arrivals import Traffic
from runtime_lite.load_test.findings import Served
from runtime_lite.plan import AT_THE_LIMIT, spreads_of
from runtime_lite.scheduling.capacity import Machine, Measured, Work, most_streams
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import Spread
from runtime_lite.scheduling.task import CHUNK, Key, ServiceClass

STEP = 0.02
"""Resolution of the search, as part of the planned number."""

RUNS = 20
"""Of each bucket and lane, whenever costs are measured."""


def measure_planner(
    path: Path, name: str, lanes: int, period_ms: float, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Return the numbers of streams planned and measured.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once, of one thread each.
        period_ms: milliseconds between two chunks.
        rounds: number of searches.
        seconds: duration of each trial, planned and real.
    """
    planned: list[float] = []
    limit: list[float] = []
    measured: list[float] = []
    for number in range(rounds):
        tables = [served_costs(path, name, lanes)]
        work = work_of(machine_of(tables, lanes), period_ms, seconds)

        def late_of(streams: int, tables: list[Measured] = tables, seed: int = number) -> float:
            traffic = Traffic(seconds, streams, chunks=50, period_s=period_ms / 1e3)
            served, _ = serve_streams(path, name, lanes, traffic, seed, service_of(period_ms))
            tables.append(served_costs(path, name, lanes))
            return late_share(served, traffic.period_s)

        measured.append(most_carried(late_of, most_streams(machine_of(tables, lanes), work).streams))
        machine = machine_of(tables, lanes)
        planned.append(most_streams(machine, work).streams)
        limit.append(most_streams(machine, replace(work, admission=False, most_late=AT_THE_LIMIT)).streams)
    at_least_one = [max(each, 1.0) for each in measured]
    return [
        {
            "period, ms": period_ms,
            "planned": spread(planned, 0),
            "measured": spread(measured, 0),
            "planned / measured": spread(ratios(planned, at_least_one)),
            "planned at the limit": spread(limit, 0),
            "to measured": spread(ratios(limit, at_least_one)),
        }
    ]


def served_costs(path: Path, name: str, lanes: int) -> Measured:
    """Return the current costs of runs of a graph on a full server."""
    timings = [timing for timing in bench_served(path, 1, lanes, RUNS) if timing.graph == name]
    costs = {timing.bucket: Cost(1, timing.p50_ms, timing.p95_ms, timing.p99_ms) for timing in timings}
    with read_bundle(path) as bundle:
        return spreads_of(bundle, name, bundle.manifest.graphs[name], costs, 1)


@contextlib.contextmanager
def costs_as_served(path: Path, lanes: int, runs: int = 100) -> Iterator[Path]:
    """Yield a copy of a bundle with the current costs of runs on a full server."""
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(shutil.copytree(path, Path(folder, path.name)))
        main(["bench", str(measured), "--workers", str(lanes), "--runs", str(runs), "--update-costs"])
        yield measured


def machine_of(tables: Sequence[Measured], lanes: int) -> Machine:
    """Return a machine of costs measured several times, with the median of each percentile."""

    def median_of(key: Key, rows: int) -> Spread:
        return Spread(*(int(median(times)) for times in zip(*(table[key][rows] for table in tables), strict=True)))

    return Machine({key: {rows: median_of(key, rows) for rows in buckets} for key, buckets in tables[0].items()}, lanes)


def work_of(machine: Machine, period_ms: float, seconds: float) -> Work:
    """Return the work of streams of all keys; a chunk is late when the next one comes."""
    period = int(period_ms * NS_PER_MS)
    return Work(tuple(machine.costs), (), period, period, service_of(period_ms), seconds=seconds)


def service_of(period_ms: float) -> ServiceClass:
    """Return a class of chunks that are late when the next one comes; half of the period is left for the run."""
    return CHUNK._replace(soft_ms=period_ms / 2)


def late_share(served: list[Served], period_s: float) -> float:
    """Return the part of the chunks that were not answered before the next one came."""
    return float(np.mean([each.outcome != "done" or each.latency_ms > period_s * 1e3 for each in served]))


def most_carried(late_of: Callable[[int], float], about: int) -> int:
    """Return the most streams at the limit, found by bisection from half to one and a half of a number."""
    low, high = round(0.5 / STEP) - 1, round(1.5 / STEP) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if late_of(max(round(about * middle * STEP), 1)) <= AT_THE_LIMIT:
            low = middle
        else:
            high = middle
    return round(about * low * STEP)
