"""Whether the planner is right: the streams that it expects at the limit of this machine, and those that it carries.

A chunk is late that is answered after the next one came. At the limit at most 1 % are; one late chunk would say more
about the neighbours of this machine than about its capacity. Costs are measured right before each search, as served.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.rounds import ratios, spread
from runtime_lite import Runtime
from runtime_lite.bench import bench_served
from runtime_lite.format.costs import Cost
from runtime_lite.load_test.arrivals import Traffic, arrivals_of
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Ends, Source, drive
from runtime_lite.load_test.findings import Served
from runtime_lite.plan import AT_THE_LIMIT, spreads_of
from runtime_lite.scheduling.capacity import Machine, Work, most_streams
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import CHUNK, ServiceClass

STEP = 0.05
"""Resolution of the search, as part of the planned number."""

RUNS = 30
"""Of each bucket and lane, when costs are measured."""


def measure_planner(
    path: Path, name: str, lanes: int, periods_ms: tuple[float, ...], rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Streams at the limit, planned and measured, by period.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once, of one thread each.
        periods_ms: from chunk to chunk.
        rounds: calibrations, each with a search.
        seconds: of each trial, planned and real.
    """
    rows = []
    for period_ms in periods_ms:
        planned: list[float] = []
        measured: list[float] = []
        admitted: list[float] = []
        for number in range(rounds):
            machine, work = calibrated(path, name, lanes, period_ms, seconds)
            admitted.append(most_streams(machine, work).streams)
            planned.append(most_streams(machine, replace(work, admission=False, most_late=AT_THE_LIMIT)).streams)
            traffic = Traffic(seconds, round(planned[-1]), chunks=50, period_s=period_ms / 1e3)
            measured.append(_most_carried(path, name, lanes, traffic, number))
        rows.append(
            {
                "period, ms": period_ms,
                "planned at the limit": spread(planned, 0),
                "measured": spread(measured, 0),
                "planned / measured": spread(ratios(planned, [max(each, 1.0) for each in measured])),
                "planned with admission": spread(admitted, 0),
            }
        )
    return rows


def calibrated(path: Path, name: str, lanes: int, period_ms: float, seconds: float) -> tuple[Machine, Work]:
    """Return this machine as it is now, and streams of one graph to plan for.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once.
        period_ms: from chunk to chunk.
        seconds: how long a plan is simulated.
    """
    with Runtime(workers=lanes) as runtime:
        model = runtime.load(path)
        timings = [timing for timing in bench_served(model, lanes, RUNS) if timing.graph == name]
        costs = {timing.bucket: Cost(1, timing.p50_ms, timing.p95_ms, timing.p99_ms) for timing in timings}
        keys = spreads_of(model.bundle, name, model.bundle.manifest.graphs[name], costs, 1)
    period = int(period_ms * NS_PER_MS)
    return Machine(keys, lanes), Work(tuple(keys), (), period, period, service_of(period_ms), seconds=seconds)


def service_of(period_ms: float) -> ServiceClass:
    """The class of chunks that are late when the next one comes; half of that is left for the run itself."""
    return CHUNK._replace(soft_ms=period_ms / 2)


def serve_streams(
    path: Path, name: str, lanes: int, traffic: Traffic, seed: int, *, admission: bool
) -> tuple[list[Served], Ends]:
    """Drive live streams through a runtime of its own; return what became of the chunks, and the runs.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once, of one thread each.
        traffic: streams alone.
        seed: of their arrivals.
        admission: whether streams are opened with their period, and so may be refused.
    """
    ends, period_ms = Ends(), traffic.period_s * 1e3
    with Runtime(workers=lanes, observers=[ends]) as runtime:
        model = runtime.load(path, warm_up=True)
        source = Source(
            recorded_feeds(model, name),
            lambda feeds: model.submit(feeds, name),
            lambda: model.open_stream(name, service=service_of(period_ms), period_ms=period_ms if admission else None),
        )
        arrivals = arrivals_of(traffic, seed)
        return drive(arrivals, {"stream": source}, lambda: runtime.drain(traffic.seconds), ends), ends


def late_share(served: list[Served], period_s: float) -> float:
    """Part of the chunks that were not answered before the next one came."""
    return float(np.mean([each.outcome != "done" or each.latency_ms > period_s * 1e3 for each in served]))


def _most_carried(path: Path, name: str, lanes: int, traffic: Traffic, seed: int) -> float:
    """The most streams at the limit, from half to one and a half times those of the traffic, by halving."""
    low, high = round(0.5 / STEP) - 1, round(1.5 / STEP) + 1
    while high - low > 1:
        middle = (low + high) // 2
        tried = replace(traffic, streams=max(round(traffic.streams * middle * STEP), 1))
        served, _ = serve_streams(path, name, lanes, tried, seed, admission=False)
        if late_share(served, tried.period_s) <= AT_THE_LIMIT:
            low = middle
        else:
            high = middle
    return traffic.streams * low * STEP
