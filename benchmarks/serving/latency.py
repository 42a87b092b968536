"""Measures the latency of chunks of live streams below full load, and the cost of a row, beside simple servers.

Capacity is what the queue (`contenders.py`) answers when more than it can carry comes. Loads are parts of it;
contenders take turns. Computing time is the whole process's from the first chunk to the last answer, that of the sender
too, and of other processes of a contender. Its floor (`floor.py`) is that of a row among as many as the queue runs at
most. Chunks of the first quarter of a turn, in which memory is new, stand in a column of their own.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from benchmarks import command
from benchmarks.floor import Machine, work_of
from benchmarks.serving.contenders import CHUNKS, MOST, OURS, QUEUE, Contender, contenders, rows_of_absent
from benchmarks.serving.planner import costs_as_served
from benchmarks.serving.rounds import in_turns, ratios, spread
from runtime_lite import read_bundle
from runtime_lite.load_test.arrivals import Traffic, arrivals_of
from runtime_lite.load_test.drive import Ends, drive
from runtime_lite.load_test.findings import Served

LOADS = (0.25, 0.5, 0.75, 0.9)


class Figures(NamedTuple):
    """Results of one turn of one contender."""

    p50_ms: float
    p99_ms: float
    first_p99_ms: float
    rows_per_cpu_s: float


def measure_latency(
    path: Path, name: str, lanes: int, period_s: float, rounds: int, seconds: float, loads: Sequence[float] = LOADS
) -> list[dict[str, Any]]:
    """Return latency and computing time by load and contender; ratios are to the better of the other two.

    Args:
        path: bundle.
        name: graph with states, whose file leaves rows open.
        lanes: runs at once, of one thread each, for all contenders.
        period_s: from chunk to chunk of a stream.
        rounds: turns.
        seconds: of each.
        loads: parts of what the queue carries.
    """
    found = []
    with costs_as_served(path, lanes) as measured, contenders(measured, name, lanes) as (there, absent):
        capacity = _capacity(there[QUEUE], period_s, seconds)
        floor_s = _floor_s(measured, name)
        for load in loads:
            streams = max(round(load * capacity * period_s), 1)
            traffic = Traffic(seconds, streams, CHUNKS, period_s)
            measures = {each: partial(_figures, each, there[each], traffic, itertools.count()) for each in there}
            turns = in_turns(measures, rounds)
            found += [_row(load, streams, each, turns, floor_s) for each in turns]
    return found + rows_of_absent(found[0], absent)


def _floor_s(path: Path, name: str) -> float:
    """Return the least computing time of a row, in the largest run of the queue."""
    with read_bundle(path) as bundle:
        graph = bundle.manifest.graphs[name]
    sizes = {**graph.artifacts[0].sizes, str(graph.batch_axis): MOST}
    work = work_of(ir.load(path / graph.artifacts[0].file), sizes)
    return Machine().floor_s(work) / MOST


def _row(
    load: float, streams: int, contender: str, turns: Mapping[str, Sequence[Figures]], floor_s: float
) -> dict[str, Any]:
    mine = turns[contender]
    others = [turns[each] for each in turns if each != OURS]
    best = [Figures(*(min(values) for values in zip(*at_once, strict=True))) for at_once in zip(*others, strict=True)]
    queue = turns[QUEUE]
    return {
        "load": f"{load:g}",
        "streams": streams,
        "contender": contender,
        "p50, ms": spread([each.p50_ms for each in mine], 1),
        "p99, ms": spread([each.p99_ms for each in mine], 1),
        "p99 of the first quarter, ms": spread([each.first_p99_ms for each in mine], 1),
        "rows per CPU s": spread([each.rows_per_cpu_s for each in mine], 0),
        "CPU to the floor": spread([1 / (each.rows_per_cpu_s * floor_s) for each in mine]),
        "p50 to the best other": spread(ratios([each.p50_ms for each in mine], [each.p50_ms for each in best])),
        "p99 to it": spread(ratios([each.p99_ms for each in mine], [each.p99_ms for each in best])),
        "rows to the queue": spread(
            ratios([each.rows_per_cpu_s for each in mine], [each.rows_per_cpu_s for each in queue])
        ),
    }


def _figures(name: str, contender: Contender, traffic: Traffic, seeds: Iterator[int]) -> Figures:
    """Run one turn, with arrivals of the next seed."""
    before_s = contender.others_s()
    with command.contender(name):
        served, ends = _served(contender, traffic, next(seeds))
    used_s = ends.cpu_s + contender.others_s() - before_s
    answered = [each for each in served if each.outcome == "done"]
    first = [each.latency_ms for each in answered if each.arrival.at < traffic.seconds * 1e9 / 4]
    later = [each.latency_ms for each in answered if each.arrival.at >= traffic.seconds * 1e9 / 4]
    p50, p99 = np.percentile(later or first, (50, 99))
    return Figures(float(p50), float(p99), float(np.percentile(first or later, 99)), len(answered) / max(used_s, 1e-9))


def _served(contender: Contender, traffic: Traffic, seed: int) -> tuple[Sequence[Served], Ends]:
    """Return how every chunk ended that was sent at its time."""
    ends = Ends()
    with contender.start(ends) as server:
        return drive(arrivals_of(traffic, seed), {"stream": server.source}, server.drain, ends), ends


def _capacity(queue: Contender, period_s: float, seconds: float) -> float:
    """Return the chunks per second of the queue if twice as many come as it carries.

    How many it carries is found with few streams first, whose states stay in the caches of the processor.
    """
    few = _answered_per_s(queue, Traffic(seconds / 10, 4 * MOST, CHUNKS, period_s / 100))
    return _answered_per_s(queue, Traffic(seconds / 2, max(round(few * period_s), 1), CHUNKS, period_s / 2))


def _answered_per_s(queue: Contender, traffic: Traffic) -> float:
    """Return the answered chunks per second."""
    served, _ = _served(queue, traffic, 0)
    return len(served) / (max(each.ended for each in served) / 1e9)
