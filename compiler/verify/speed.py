"""How long a call of an artefact takes, on full windows of random numbers."""

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
    shape = tuple(value.shape)
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
