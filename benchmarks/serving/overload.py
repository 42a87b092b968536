"""Measures requests with a deadline under up to three times the capacity, and the time until answers are in time again.

Capacity is measured right before, in the same form: what is answered in time when too much comes. Answers count when
they are given: a queue that fills while a load grows is no goodput of that time. The loads follow each other, round
after round: a machine changes from minute to minute by more than the bar leaves.

Requests are sent from this process, on the same cores. A thread that woke for each of them would take a tenth of two
cores at three times the load; as a front end reads what has come on all its sockets, this one wakes every few ms and
sends what is due. Latency counts from when a request was meant to come all the same.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.serving.driven import serve
from benchmarks.serving.planner import served_costs
from benchmarks.serving.rounds import ratios, spread
from runtime_lite import Model
from runtime_lite.load_test.arrivals import NS_PER_S, Arrival, Traffic, arrivals_of
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Source
from runtime_lite.load_test.findings import Served
from runtime_lite.scheduling.task import UTTERANCE

FACTORS = (1.0, 1.5, 2.0, 3.0, 0.8)
"""Of the measured capacity, one after the other."""

WAKES_S = 0.005
"""Least time from one look at what is due to the next."""

CALIBRATING = 1.5
"""Of what the costs promise: more than can be answered."""


def measure_overload(path: Path, name: str, lanes: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return the goodput by part of the traffic, and how its requests ended; ratios are per round.

    Args:
        path: bundle.
        name: graph; each request is a feed of one row, which begins with the initial states if there are any.
        lanes: runs at once, of one thread each.
        rounds: turns.
        seconds: of each part of a round.
    """
    costs = served_costs(path, name, lanes)
    best_ns = min(cost.p50 / rows for buckets in costs.values() for rows, cost in buckets.items())
    promised_per_s = lanes * NS_PER_S / best_ns
    with_deadline = _Requests(path, name, lanes)
    capacity = _in_time_per_s(with_deadline.serve((CALIBRATING * promised_per_s,), seconds), 0, seconds)
    found = [with_deadline.serve([factor * capacity for factor in FACTORS], seconds) for _ in range(rounds)]
    goodput = [[_in_time_per_s(served, at, seconds) for served in found] for at in range(len(FACTORS))]
    best = [max(each, 1e-9) for each in max(goodput, key=median)]
    normal = [_normal_after_s(served, (len(FACTORS) - 1) * seconds) for served in found]
    return [
        {
            "load": f"{factor:g}x",
            "sent per s": f"{factor * capacity:.0f}",
            "in time per s": spread(goodput[at], 0),
            "to the best": spread(ratios(goodput[at], best), 3),
            **_ends(found, at, seconds),
            "last missed, s": spread(normal) if at == len(FACTORS) - 1 else "",
        }
        for at, factor in enumerate(FACTORS)
    ]


class _Requests:
    """Serves single requests at random times, each time in a new runtime."""

    def __init__(self, path: Path, name: str, lanes: int) -> None:
        self._path, self._name, self._lanes = path, name, lanes

    def serve(self, per_s: Sequence[float], seconds: float) -> list[Served]:
        """Return how requests at some rates, one after the other, ended."""

        def source_of(model: Model) -> Source:
            feeds = recorded_feeds(model, self._name)
            return Source(feeds, lambda given: model.submit(given, self._name, service=UTTERANCE))

        arrivals = list(_arrivals(per_s, seconds))
        return serve(self._path, self._lanes, arrivals, "utterance", source_of, 10.0, _wait)[0]


def _wait(seconds: float) -> None:
    time.sleep(max(seconds, WAKES_S))


def _arrivals(per_s: Sequence[float], seconds: float) -> Iterator[Arrival]:
    for at, rate in enumerate(per_s):
        for arrival in arrivals_of(Traffic(seconds, utterances_per_s=rate), at):
            yield arrival._replace(at=arrival.at + round(at * seconds * NS_PER_S))


def _is_in_time(each: Served) -> bool:
    return each.outcome == "done" and each.latency_ms <= (UTTERANCE.hard_ms or 0.0)


def _in_time_per_s(served: Sequence[Served], at: int, seconds: float) -> float:
    begin, end = at * seconds * NS_PER_S, (at + 1) * seconds * NS_PER_S
    return sum(_is_in_time(each) and begin <= each.ended < end for each in served) / seconds


def _ends(found: Sequence[Sequence[Served]], at: int, seconds: float) -> dict[str, Any]:
    """Return how many requests of a part were refused, dropped and late in all rounds, and how late."""
    begin, end = at * seconds * NS_PER_S, (at + 1) * seconds * NS_PER_S
    part = [each for served in found for each in served if begin <= each.arrival.at < end]
    kinds: dict[str, Callable[[Served], bool]] = {
        "refused": lambda each: each.outcome in ("refused", "dropped") and each.ended == each.sent,
        "dropped": lambda each: each.outcome == "dropped" and each.ended != each.sent,
        "late": lambda each: each.outcome == "done" and not _is_in_time(each),
    }
    counts: dict[str, Any] = {kind: sum(map(holds, part)) for kind, holds in kinds.items()}
    p50, p99 = np.percentile([each.latency_ms for each in part if each.outcome == "done"] or [0.0], (50, 99))
    lag_ms = max(((each.sent - each.arrival.at) / 1e6 for each in part), default=0.0)
    return {**counts, "p50, ms": f"{p50:.0f}", "p99, ms": f"{p99:.0f}", "sent late, ms": f"{lag_ms:.0f}"}


def _normal_after_s(served: Sequence[Served], since_s: float) -> float:
    """Return how long after a time the last request came that was not answered in time."""
    missed = [each.arrival.at / NS_PER_S - since_s for each in served if not _is_in_time(each)]
    return max(0.0, *missed, 0.0)
