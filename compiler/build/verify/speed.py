"""Measures the time of an artefact's call, alone or relative to the same bucket of another graph."""

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from compiler.base.records.build_report import SpeedRow
from compiler.base.records.timings import Ratio
from compiler.graph.runners.paired_rounds import Call, Rounds, judged_ratios
from compiler.graph.runners.session import Session
from compiler.graph.stages import Array
from compiler.targets.base import Emitted
from runtime_lite.format.manifest import bucket_name

Open = Callable[[Path], Session]

SPEED_CALLS = 40


SPEED_WARM_UP = 5


SPEED_LEAST_CALLS = 10


SPEED_LIMIT_S = 2.0
"""A bucket whose calls are slow is timed for so long, by the least number of calls at least."""


def measure_speed(folder: Path, artifacts: Sequence[Emitted], graph: str, opens: Open) -> list[SpeedRow]:
    """Return the time of one call per bucket, on full windows of random numbers.

    Args:
        folder: folder of the artefacts.
        artifacts: artefacts, one per bucket.
        graph: the graph's name.
        opens: opens an artefact on one thread.
    """
    rows = []
    for _, alike in itertools.groupby(artifacts, lambda emitted: emitted.file):
        for sizes, call in bucket_calls(folder, list(alike), opens).items():
            times_ms = _timed_calls(call)
            p95 = statistics.quantiles(times_ms, n=20)[-1]
            rows.append(SpeedRow(graph, sizes, statistics.median(times_ms), p95, 1))
    return rows


def _timed_calls(call: Call) -> list[float]:
    """Return the times of single calls in ms, without those of the warm-up."""
    times_ms: list[float] = []
    for _ in range(SPEED_WARM_UP):
        call()
    began = time.perf_counter()
    while len(times_ms) < SPEED_LEAST_CALLS or (
        len(times_ms) < SPEED_CALLS and time.perf_counter() - began < SPEED_LIMIT_S
    ):
        started = time.perf_counter()
        call()
        times_ms.append(1e3 * (time.perf_counter() - started))
    return times_ms


def bucket_calls(folder: Path, artifacts: Sequence[Emitted], opens: Open) -> dict[str, Call]:
    """Return a function per bucket that runs one call on full windows; buckets of one file share a session."""
    sessions = {file: opens(folder / file) for file in dict.fromkeys(each.file for each in artifacts)}
    return {
        bucket_name(each.sizes): functools.partial(sessions[each.file].run, None, full_feeds(each))
        for each in artifacts
    }


def full_feeds(emitted: Emitted) -> dict[str, Array]:
    """Return the inputs of one bucket: random numbers, and lengths and masks with every slot valid."""
    return {str(value.name): _full(value, emitted) for value in emitted.lowered.model.graph.inputs}


def _full(value: ir.Value, emitted: Emitted) -> Array:
    assert value.shape is not None and value.dtype is not None
    shape = tuple(size if isinstance(size, int) else emitted.sizes[str(size)] for size in value.shape)
    dtype = value.dtype.numpy()
    for padded_axis in emitted.lowered.padded_axes:
        if value.name == padded_axis.length_input:
            return np.full(shape, emitted.sizes[padded_axis.axis], dtype)
    for cache in emitted.lowered.caches:
        if value.name == cache.length_input:
            return np.full(shape, cache.slots, np.int64)
        if value.name == cache.mask_input:
            return np.ones(shape, np.float32)
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    return np.random.default_rng(0).random(shape).astype(dtype)


def measure_ratios(
    folder: Path, artifacts: Sequence[Emitted], opens: Open,
    other: Path, others: Sequence[Emitted], opens_others: Open, limit: float | None,
) -> list[Ratio]:  # fmt: skip
    """Return the time of every bucket's graph over that of the same bucket before rounding.

    Args:
        folder: folder of the artefacts.
        artifacts: artefacts, one per bucket.
        opens: opens an artefact on one thread.
        other: folder of the artefacts before rounding.
        others: likewise.
        opens_others: opens one of these.
        limit: limit of the ratios, which are measured until they are known to be above or below; None for none.
    """
    first, second = bucket_calls(folder, artifacts, opens), bucket_calls(other, others, opens_others)
    return judged_ratios({sizes: Rounds((call, second[sizes])) for sizes, call in first.items()}, limit)
