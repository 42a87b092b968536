"""How long a call of an artefact takes, on full windows of random numbers: alone, and beside another graph."""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.records.build_report import SpeedRow
from compiler.runners.session import open_session
from compiler.stages import Array
from compiler.targets.base import Emitted
from runtime_lite.format.manifest import bucket_name

TYPES = {"float": "float32", "double": "float64"}
"""Names of ONNX Runtime that NumPy has others for."""


SPEED_CALLS = 40


SPEED_WARM_UP = 5


SPEED_LEAST_CALLS = 10


SPEED_LIMIT_S = 2.0
"""A bucket whose calls are slow is timed for so long, by the least number of calls at least."""


ROUNDS = 15


ROUND_S = 0.04
"""Time of one graph in one round; several calls where one is shorter."""


def measure_speed(folder: Path, artifacts: Sequence[Emitted], graph: str) -> list[SpeedRow]:
    """Time of one call per bucket on one thread, on full windows of random numbers."""
    found = []
    for emitted in artifacts:
        session = open_session(str(folder / emitted.file), optimize=True)
        feed = {value.name: full_feed(value, emitted) for value in session.get_inputs()}
        times_ms = _timed_calls(functools.partial(session.run, None, feed))
        p95 = statistics.quantiles(times_ms, n=20)[-1]
        found.append(SpeedRow(graph, bucket_name(emitted.sizes), statistics.median(times_ms), p95, 1))
    return found


def _timed_calls(call: Callable[[], object]) -> list[float]:
    """Times of single calls in ms, those of the warm-up left out."""
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


def full_feed(value: Any, emitted: Emitted) -> Array:
    """An input of one bucket: random numbers; lengths and masks of places that are all valid."""
    shape = tuple(size if isinstance(size, int) else emitted.sizes[size] for size in value.shape)
    for each in emitted.lowered.padded_axes:
        if value.name == each.length_input:
            return np.full(shape, emitted.sizes[each.axis], np.int64 if "64" in value.type else np.int32)
    for cache in emitted.lowered.caches:
        if value.name == cache.length_input:
            return np.full(shape, cache.slots, np.int64)
        if value.name == cache.mask_input:
            return np.ones(shape, np.float32)
    dtype = np.dtype(TYPES.get(value.type[7:-1], value.type[7:-1]))
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    return np.random.default_rng(0).random(shape).astype(dtype)


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Time of one graph over that of another, per round.

    Attributes:
        sizes: the bucket.
        median: over the rounds.
        low: 10th percentile.
        high: 90th percentile.
    """

    sizes: str
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.sizes} {self.median:.2f} ({self.low:.2f}..{self.high:.2f})"


def time_ratio(
    sizes: str,
    graph: Callable[[], object],
    other: Callable[[], object],
    *,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.thread_time,
) -> Ratio:
    """Run both in turns, in alternating order, so that what else the machine does falls on both.

    Args:
        sizes: the bucket, for messages.
        graph: runs one call.
        other: runs one call of what it is compared with.
        rounds: how often both are timed.
        clock: seconds; those that the calling thread has spent computing, on which all of a session of one thread
            runs, so that nothing is counted while another process has the core.
    """
    runs = (graph, other)
    calls = max(1, round(ROUND_S / max(max(_timed(run, 2, clock) for run in runs), 1e-6)))
    ratios = []
    for index in range(rounds):
        order = (0, 1) if index % 2 else (1, 0)
        times = {which: _timed(runs[which], calls, clock) for which in order}
        ratios.append(times[0] / times[1])
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    return Ratio(sizes, statistics.median(ratios), tenths[0], tenths[-1])


def _timed(run: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(calls):
        run()
    return (clock() - started) / calls


def measure_ratios(folder: Path, artifacts: Sequence[Emitted], other: Path, others: Sequence[Emitted]) -> list[Ratio]:
    """The time of every bucket's graph over that of the same bucket before rounding, on one thread."""
    found = []
    for rounded, exact in zip(artifacts, others, strict=True):
        sessions = [
            open_session(str(place / emitted.file), optimize=True)
            for place, emitted in ((folder, rounded), (other, exact))
        ]
        feeds = [
            {value.name: full_feed(value, emitted) for value in session.get_inputs()}
            for session, emitted in zip(sessions, (rounded, exact), strict=True)
        ]
        a, b = (
            lambda session=session, feed=feed: session.run(None, feed)
            for session, feed in zip(sessions, feeds, strict=True)
        )
        found.append(time_ratio(bucket_name(rounded.sizes), a, b))
    return found
