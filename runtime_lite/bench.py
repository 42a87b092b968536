"""Measures the time of one run per bucket, with all rows in use, every row as long as the bucket and full caches.

Alone: a bucket in a loop, which finds its code and weights where they were. As served: on as many threads as runs will
be in flight at once, the buckets in turns, a pause after each run, and each row the feed and the states of a request of
its own. The second is what a scheduler has to reckon with.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from runtime_lite.calls.feeds import feed_of
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, initial_state
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Artifact, Graph, Tensor, bucket_name, static_shape
from runtime_lite.model import Model

BUSY = 0.75
"""Part of the time that a thread runs something while runs are measured as served: what streams are admitted up to."""


@dataclass(frozen=True)
class Timing:
    """Times of one bucket.

    Attributes:
        graph: graph name.
        bucket: `batch=4`.
        first_ms: the first run, which opens the session.
        p50_ms: median of the timed runs.
        p95_ms: 95th percentile.
        p99_ms: 99th percentile.
    """

    graph: str
    bucket: str
    first_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


def bench_model(
    model: Model, runs: int, warm_up_runs: int, clock_ns: Callable[[], int] = time.perf_counter_ns
) -> Iterator[Timing]:
    """Yield the times of every bucket of every graph.

    Args:
        model: a loaded model.
        runs: timed runs per bucket, at least 1.
        warm_up_runs: untimed runs after the first.
        clock_ns: monotonic clock.
    """
    for name, graph in model.bundle.manifest.graphs.items():
        for artifact in graph.artifacts:
            yield _bench_bucket(model.runner(name), artifact, runs, warm_up_runs, clock_ns)


def _bench_bucket(
    runner: GraphRunner, artifact: Artifact, runs: int, warm_up_runs: int, clock_ns: Callable[[], int]
) -> Timing:
    call = bucket_call(runner, artifact)

    def time_run_ms() -> float:
        start = clock_ns()
        call()
        return (clock_ns() - start) / 1e6

    first_ms = time_run_ms()
    for _ in range(warm_up_runs):
        time_run_ms()
    return _timing(runner, artifact, first_ms, [time_run_ms() for _ in range(runs)])


def _timing(runner: GraphRunner, artifact: Artifact, first_ms: float, times_ms: list[float]) -> Timing:
    p50, p95, p99 = (float(value) for value in np.percentile(times_ms, (50, 95, 99)))
    return Timing(runner.name, bucket_name(artifact.sizes), first_ms, p50, p95, p99)


def bench_served(
    model: Model,
    workers: int,
    runs: int,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    wait: Callable[[float], object] = time.sleep,
) -> list[Timing]:
    """Return the times of every bucket of every graph, as served.

    Args:
        model: a loaded model.
        workers: runs in flight at once.
        runs: timed runs per bucket and worker, at least 1, after one that is not.
        clock_ns: monotonic clock.
        wait: for seconds.
    """
    buckets = [
        (model.runner(name), artifact)
        for name, graph in model.bundle.manifest.graphs.items()
        for artifact in graph.artifacts
    ]

    def work(worker: int) -> list[list[float]]:
        """Times in ms by bucket; the workers are never all at the same bucket if there are several."""
        calls = [_served_call(runner, artifact) for runner, artifact in buckets]
        found: list[list[float]] = [[] for _ in buckets]
        for turn in range((runs + 1) * len(calls)):
            at = (turn + worker) % len(calls)
            start = clock_ns()
            calls[at]()
            ns = clock_ns() - start
            found[at].append(ns / 1e6)
            wait(ns / 1e9 * (1 / BUSY - 1))
        return found

    with ThreadPoolExecutor(workers) as threads:
        by_worker = list(threads.map(work, range(workers)))
    timings = []
    for at, (runner, artifact) in enumerate(buckets):
        times_ms = [ms for found in by_worker for ms in found[at][1:]]
        timings.append(_timing(runner, artifact, max(found[at][0] for found in by_worker), times_ms))
    return timings


def bucket_call(runner: GraphRunner, artifact: Artifact) -> Callable[[], object]:
    """Return what runs a bucket once, with all of it in use."""
    graph = runner.graph
    feed = feed_of(graph, _feed_arrays(graph, artifact.sizes), artifact.sizes)
    state = _full_state(graph, feed.rows)

    def call() -> None:
        nonlocal state
        ((_, state),) = runner.step_streams([feed], [state], artifact.sizes)

    return call


def _served_call(runner: GraphRunner, artifact: Artifact) -> Callable[[], object]:
    """Return what checks a feed for each row of a bucket, and runs them together."""
    graph, axis = runner.graph, runner.graph.batch_axis
    rows = 1 if axis is None else artifact.sizes[axis]
    requests, rows_of_each = (1, rows) if runner.batching_fault() else (rows, 1)
    sizes = dict(artifact.sizes) if axis is None else {**artifact.sizes, axis: rows_of_each}
    arrays = _feed_arrays(graph, sizes)
    states = [_full_state(graph, rows_of_each) for _ in range(requests)]

    def call() -> None:
        feeds = [runner.check("bench", arrays, rows_of_each) for _ in range(requests)]
        states[:] = [state for _, state in runner.step_streams(feeds, states, artifact.sizes)]

    return call


def _full_state(graph: Graph, rows: int) -> StreamState:
    lengths = {cache.axis: np.full(rows, cache.slots) for cache in graph.caches}
    return replace(initial_state(graph, rows), lengths=lengths)


def _feed_arrays(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Array]:
    return {tensor.name: _feed_array(tensor, sizes) for tensor in graph.inputs if tensor.role == "data"}


def _feed_array(tensor: Tensor, sizes: Mapping[str, int]) -> Array:
    """Return waves for floating inputs and zeros for the others, which may be indices into a table."""
    shape = static_shape(tensor.shape, sizes)
    if tensor.dtype.startswith("float"):
        # not numpy.random: it is imported at its first use, and that import swallows a Ctrl-C (numpy 2.4)
        return np.sin(np.arange(math.prod(shape))).reshape(shape).astype(tensor.dtype)
    return np.zeros(shape, tensor.dtype)
