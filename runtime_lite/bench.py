"""Measures the execution time of every bucket with all rows in use, each as long as the bucket, and full caches.

A bucket runs in a loop, alone, with its code and weights still in the processor's caches; in service a run takes
longer, which `bench_served` measures.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from runtime_lite.calls.feeds import feed_of
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, initial_state
from runtime_lite.executors.memory import Crossed
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Artifact, Graph, Tensor, bucket_name, static_shape
from runtime_lite.model import Model


@dataclass(frozen=True)
class Timing:
    """Times of one bucket.

    Attributes:
        graph: graph name.
        bucket: bucket name, e.g. `batch=4`.
        first_ms: the first run, which opens the session.
        p50_ms: median of the timed runs.
        p95_ms: 95th percentile of the timed runs.
        p99_ms: 99th percentile of the timed runs.
        crossed: bytes that crossed between host and device in one of the timed runs; None where they ran on the host.
    """

    graph: str
    bucket: str
    first_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    crossed: Crossed | None = None


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
    """Time the first run of a bucket, then `runs` runs after `warm_up_runs` untimed ones."""
    call = bucket_call(runner, artifact)

    def time_run_ms() -> float:
        start = clock_ns()
        call()
        return (clock_ns() - start) / 1e6

    first_ms = time_run_ms()
    for _ in range(warm_up_runs):
        time_run_ms()
    times_ms = [time_run_ms() for _ in range(runs - 1)]
    before = runner.crossed
    times_ms.append(time_run_ms())
    after = runner.crossed
    crossed = None if before is None or after is None else after.since(before)
    return replace(timing_of(runner.name, artifact, first_ms, times_ms), crossed=crossed)


def timing_of(graph: str, artifact: Artifact, first_ms: float, times_ms: Sequence[float]) -> Timing:
    """Return the timing of a bucket, with the percentiles of its run times in ms."""
    p50, p95, p99 = (float(value) for value in np.percentile(times_ms, (50, 95, 99)))
    return Timing(graph, bucket_name(artifact.sizes), first_ms, p50, p95, p99)


def bucket_call(runner: GraphRunner, artifact: Artifact) -> Callable[[], object]:
    """Return a function that runs a bucket once, with every row in use and every cache full."""
    graph = runner.graph
    feed = feed_of(graph, feed_arrays(graph, artifact.sizes), artifact.sizes)
    state = _full_state(graph, feed.rows, artifact.sizes)
    begun = {cache.axis: state.lengths[cache.axis].copy() for cache in graph.caches if cache.is_whole}

    def call() -> None:
        nonlocal state
        ((_, state),) = runner.step_streams([feed], [state], artifact.sizes)
        for axis, lengths in begun.items():  # a stream that forgets nothing would end here: every call is its last one
            state.lengths[axis][...] = lengths

    return call


def _full_state(graph: Graph, rows: int, sizes: Mapping[str, int]) -> StreamState:
    """Return the state of a stream whose caches are as full as a call of some sizes allows."""
    lengths = {axis: np.full(rows, valid) for axis, valid in full_caches(graph, sizes).items()}
    return replace(initial_state(graph, rows), lengths=lengths)


def full_caches(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return, by cache axis, the largest number of valid frames that a row may have before a call of some sizes."""
    room = {each: each.slots - (each.frames_of(sizes) if each.is_whole else 0) for each in graph.caches}
    return {each.axis: valid // each.chunk * each.chunk for each, valid in room.items()}


def feed_arrays(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return an array for every input of role data, at some sizes."""
    return {tensor.name: _feed_array(tensor, sizes) for tensor in graph.inputs if tensor.role == "data"}


def _feed_array(tensor: Tensor, sizes: Mapping[str, int]) -> Array:
    """Return a sine wave for a floating-point input and zeros for any other, within the input's range."""
    shape = static_shape(tensor.shape, sizes)
    if tensor.range is not None:
        return np.full(shape, min(max(0, tensor.range[0]), tensor.range[1]), tensor.dtype)
    if tensor.dtype.startswith("float"):
        # not numpy.random: it is imported at its first use, and that import swallows a Ctrl-C (numpy 2.4)
        return np.sin(np.arange(math.prod(shape))).reshape(shape).astype(tensor.dtype)
    return np.zeros(shape, tensor.dtype)
