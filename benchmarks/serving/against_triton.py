"""Requests per second and round trips of a model that does nothing: the runtime beside a real Triton server."""

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.no_op import write_no_op
from benchmarks.serving.rounds import in_turns, ratios, spread, times_us
from benchmarks.serving.triton_client import WIDTH
from benchmarks.serving.triton_server import triton
from runtime_lite import Model, Runtime
from runtime_lite.format.arrays import Array

IN_FLIGHT = 64


def measure_against_triton(cache: Path, rounds: int, calls: int) -> list[dict[str, Any]]:
    """Measure both in turn; ratios are ours to Triton's.

    Raises:
        Absent: there is no Triton server on this machine.
    """
    feed = {"x": np.zeros((1, WIDTH), np.float32)}
    with tempfile.TemporaryDirectory() as scratch, Runtime() as runtime, triton(cache) as client:
        bundle = write_no_op(Path(scratch, "bundle"), width=WIDTH, stream=False)
        model = runtime.load(bundle, warm_up=True)  # costs are known before the first request, as a built bundle's are
        found = in_turns(
            {
                "Triton, trip": lambda: float(np.median(client.round_trips_us(calls))),
                "run": lambda: float(np.median(times_us(lambda: model.run(feed), calls))),
                "Triton, in flight": lambda: client.requests_per_s(IN_FLIGHT, 10 * calls),
                "submit": lambda: submitted_per_s(model, feed, IN_FLIGHT, 10 * calls),
            },
            rounds,
        )
    rows = (
        ("p50 us, one at a time", "run", "Triton, trip"),
        (f"per s, {IN_FLIGHT} in flight", "submit", "Triton, in flight"),
    )
    return [
        {
            "measure": what,
            "runtime_lite": spread(found[ours], 1),
            "Triton, gRPC": spread(found[theirs], 1),
            "ratio": spread(ratios(found[ours], found[theirs]), 3),
        }
        for what, ours, theirs in rows
    ]


def submitted_per_s(model: Model, feed: dict[str, Array], in_flight: int, count: int) -> float:
    """Return requests per second of one caller with `in_flight` requests at a time."""
    waiting: deque[Any] = deque()
    start = time.perf_counter()
    for _ in range(count):
        if len(waiting) == in_flight:
            waiting.popleft().result()
        waiting.append(model.submit(feed))
    for ticket in waiting:
        ticket.result()
    return count / (time.perf_counter() - start)
