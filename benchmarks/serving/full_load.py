"""Measures rows per second of a streaming graph under full load, beside bare loops over every bucket of rows.

Streams are served as work without time limits. Streams of live chunks are measured, too: their soft target of 160 ms
has priority over throughput, so that small batches answer some in time and the others wait.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.floor import Machine, work_of
from benchmarks.serving.planner import costs_as_served
from benchmarks.serving.recorder import full_feed
from benchmarks.serving.rounds import in_turns, ratios, spread
from runtime_lite import BULK, CHUNK, Model, Runtime, ServiceClass, read_bundle
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.manifest import Artifact, Graph, static_shape
from runtime_lite.load_test.command import recorded_feeds

Measure = Callable[[], float]

STREAMS_PER_ROW = 4
"""So many streams for each row of the largest bucket: there is always a full batch to choose."""


def measure_full_load(path: Path, name: str, lanes: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return rows per second and latencies of chunks; ratios are to the best bare loop.

    A lane's time for a run is compared with the floor of its bucket, in the runtime with that of the cheapest bucket.
    Costs are measured before, as a full server has them: those of a build beside other work make batches small.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once, of one thread each, for all contenders.
        rounds: turns.
        seconds: of each turn.
    """
    with costs_as_served(path, lanes) as measured, read_bundle(measured) as bundle, Runtime(workers=lanes) as runtime:
        graph = bundle.manifest.graphs[name]
        executor = make_executor(bundle, name, 1)
        model = runtime.load(measured, warm_up=True)
        took_ms: dict[str, list[float]] = {service.name: [] for service in (BULK, CHUNK)}
        contenders = {
            f"ONNX Runtime, {_rows_of(graph, artifact)} rows": _bare(name, graph, executor, artifact, lanes, seconds)
            for artifact in graph.artifacts
        }
        contenders |= {
            f"runtime_lite, {service.name}": _served(model, name, graph, service, seconds, took_ms[service.name])
            for service in (BULK, CHUNK)
        }
        for warm in contenders.values():
            warm()
        for each in took_ms.values():
            each.clear()
        found = in_turns(contenders, rounds)
        executor.close()
        machine = Machine()
        at_floor = {
            contender: _rows_of(graph, artifact)
            / machine.floor_s(work_of(ir.load(measured / artifact.file), artifact.sizes))
            for contender, artifact in zip(contenders, graph.artifacts, strict=False)
        }
    best = max(
        (each for each in found if each.startswith("ONNX")), key=lambda contender: float(np.median(found[contender]))
    )
    return [
        {
            "contender": each,
            "rows per s": spread(values, 1),
            f"to {best}": spread(ratios(values, found[best]), 3),
            "to the floor": f"{lanes * at_floor.get(each, max(at_floor.values())) / float(np.median(values)):.2f}",
            "p50, ms": _percentile(took_ms.get(each.removeprefix("runtime_lite, ")), 50),
            "p99, ms": _percentile(took_ms.get(each.removeprefix("runtime_lite, ")), 99),
        }
        for each, values in found.items()
    ]


def _percentile(times_ms: list[float] | None, percent: int) -> str:
    return f"{np.percentile(times_ms, percent):.0f}" if times_ms else ""


def _bare(name: str, graph: Graph, executor: Executor, artifact: Artifact, lanes: int, seconds: float) -> Measure:
    """Return a measure of loops of one bucket, one per lane, that only run, with arrays allocated before."""
    fed = full_feed(name, graph, artifact)

    def measure() -> float:
        counts = [0] * lanes
        start = time.perf_counter()

        def loop(lane: int) -> None:
            outputs = {t.name: np.empty(static_shape(t.shape, artifact.sizes), t.dtype) for t in graph.outputs}
            while time.perf_counter() < start + seconds:
                executor.run(artifact.sizes, fed, outputs)
                counts[lane] += 1

        threads = [threading.Thread(target=loop, args=(lane,)) for lane in range(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) * _rows_of(graph, artifact) / (time.perf_counter() - start)

    return measure


def _rows_of(graph: Graph, artifact: Artifact) -> int:
    return 1 if graph.batch_axis is None else artifact.sizes[graph.batch_axis]


def _served(
    model: Model, name: str, graph: Graph, service: ServiceClass, seconds: float, took_ms: list[float]
) -> Measure:
    streams = STREAMS_PER_ROW * graph.row_buckets[-1]
    return lambda: pushed_per_s(model, name, streams, seconds, service, took_ms)


def pushed_per_s(
    model: Model,
    name: str,
    streams: int,
    seconds: float,
    service: ServiceClass = BULK,
    took_ms: list[float] | None = None,
) -> float:
    """Return chunks per second of streams that each push the next chunk after an answer.

    Args:
        model: a loaded model.
        name: graph with states.
        streams: number of open streams.
        seconds: time for which chunks are sent.
        service: service class of the chunks.
        took_ms: collects the time of each chunk until its answer was read; answers are read in the order of the chunks.
    """
    feeds = recorded_feeds(model, name)
    with contextlib.ExitStack() as open_streams:
        opened = [open_streams.enter_context(model.open_stream(name, service=service)) for _ in range(streams)]
        start = time.perf_counter()
        waiting = deque((stream, stream.submit(feeds[0]), start) for stream in opened)
        done = 0
        while waiting:
            stream, ticket, sent = waiting.popleft()
            ticket.result()
            now = time.perf_counter()
            done += 1
            if took_ms is not None:
                took_ms.append((now - sent) * 1e3)
            if now < start + seconds:
                waiting.append((stream, stream.submit(feeds[done % len(feeds)]), now))
        return done / (time.perf_counter() - start)
