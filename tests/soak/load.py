"""Rows 6, 7, 8, 17, 27 and 29: loads on the scheduler's own code, on a virtual clock; they are exact."""

import itertools
import random
from collections.abc import Iterable, Iterator
from time import perf_counter_ns

import numpy as np

from benchmarks.mixed_traffic import (
    CHUNKS,
    Load,
    Outcome,
    S,
    mixed_costs,
    real_costs,
)
from benchmarks.plain_schedulers import SWEEP
from benchmarks.scheduling import FULL_PER_S, ours, play, tune
from runtime_lite.errors import Dropped, Overloaded
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.cost_table import WINDOW, CostTable, RowCosts, Spread
from runtime_lite.scheduling.decision import Run
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.simulation import simulate
from runtime_lite.scheduling.task import (
    CHUNK,
    INTERACTIVE,
    UTTERANCE,
    Key,
    ServiceClass,
    Task,
    task_at,
)
from tests.soak.adder import fed, is_sum
from tests.soak.observed_requests import ObservedRequests
from tests.soak.puppet import puppet
from tests.soak.row import Figures

MS = NS_PER_MS


def deadline_storm(size: int, timed: bool) -> Figures:
    """Row 6: `size` tasks that expire together behind a run that takes too long; and answers around their deadline."""
    half, whole = _sweep(size // 2), _sweep(size)
    found = {"ended otherwise": whole[0] + half[0], "drop lag ms": max(whole[1], half[1])}
    found["results after the deadline"], found["results before it"] = _around_deadlines(min(size, 400))
    if timed:
        found |= {
            "sweep ms": whole[2],
            "sweep / (n log n of half)": whole[2] / half[2] / (2 * np.log2(size) / np.log2(size / 2)),
        }
    return found


def _sweep(count: int) -> tuple[int, float, float]:
    """Tasks that did not end as dropped; ms from the latest start to the drop, by the clock; ms of the sweep."""
    blocked, blocking = Key("a", "storm"), Key("b", "blocking")
    costs = CostTable()
    costs.add(blocked, {1: Spread.always(MS), count: Spread.always(20 * MS)})
    costs.add(blocking, {1: Spread.always(10 * MS)})
    scheduler = Scheduler(costs)
    scheduler.submit(task_at(blocking, INTERACTIVE, 0), 0)
    run = scheduler.decide(0).run
    assert run is not None
    service = UTTERANCE._replace(hard_ms=50)
    tasks = [task_at(blocked, service, 0) for _ in range(count)]
    refused = sum(scheduler.submit(task, 0) is not None for task in tasks)
    early, wake = scheduler.decide(0).dropped, scheduler.decide(0).wake
    assert wake is not None
    begin = perf_counter_ns()
    dropped = scheduler.decide(wake).dropped
    took = (perf_counter_ns() - begin) / MS
    scheduler.finished(run, 1000 * MS)
    assert scheduler.decide(1000 * MS) == (None, [], None)
    ended = {task for task, _ in dropped}
    return refused + len(early) + count - len(ended & set(tasks)), (wake - 49 * MS) / MS, took


def _around_deadlines(count: int) -> tuple[int, int]:
    """Answers that were delivered after their deadline, and in time; runs take up to thrice what they should."""
    draw, late, in_time = random.Random(6), 0, 0
    with puppet() as place:
        place.hook = lambda _: place.clock.advance_to(place.clock() + draw.randrange(5, 30) * MS)
        for _ in range(count):
            deadline_ms = draw.randrange(11, 60)
            until = place.clock() + deadline_ms * MS
            try:
                ticket = place.model.submit(fed(1), deadline_ms=deadline_ms)
                place.release()
                delivered = is_sum(ticket.result(0), 1)
            except (Dropped, Overloaded):
                continue
            late += delivered and place.clock() > until
            in_time += delivered and place.clock() <= until
    return late, in_time


FACTORS = (0.5, 1.0, 1.5, 2.0, 3.0, 0.8)


def overload(size: int, timed: bool) -> Figures:
    """Row 7: streams, voices, and utterances from 0.5 to 3 times what the device carries and back, `size` s each."""
    outcome, parts = _sweep_of_loads(size)
    since = (len(FACTORS) - 1) * size
    return {
        "goodput at 2x / best": parts[3] / max(parts),
        "goodput at 3x / best": parts[4] / max(parts),
        "normal again after s": _normal_after_s(outcome, since, since + size),
        "last one missed after s": max((at - since for at in _missed_s(outcome) if at >= since), default=0.0),
        "late chunks": outcome.late,
        "results after the deadline": outcome.after_deadline,
    }


def _normal_after_s(outcome: Outcome, since: int, until: int) -> float:
    """End of the last half second, by arrival, of whose utterances less than 95 % were answered in time."""
    halves = [since + at / 2 for at in range(2 * (until - since))]
    return max((at + 0.5 - since for at in halves if outcome.share_in_time(at, at + 0.5) < 0.95), default=0.0)


def _missed_s(outcome: Outcome) -> list[float]:
    answered = set(outcome.in_time)
    return [one[0] / S for one in outcome.offered if one not in answered]


def _sweep_of_loads(seconds: int, retries: int = 0) -> tuple[Outcome, list[float]]:
    load = Load(400, tuple(FULL_PER_S * factor for factor in FACTORS), seconds * len(FACTORS))
    outcome = play(ours(), load, 1, retries=retries)
    return outcome, [outcome.audio_in_time(at * seconds, (at + 1) * seconds) for at in range(len(FACTORS))]


def retries(size: int, timed: bool) -> Figures:
    """Row 8: each drop sent again three times, over loads of `size` seconds; half of the clients vanish at once."""
    with_retries, without = (_sweep_of_loads(size, retries=count)[1] for count in (3, 0))
    return {
        "goodput at 2x / without retries": with_retries[3] / without[3],
        "goodput at 3x / without retries": with_retries[4] / without[4],
        **_half_vanish(min(8 * size, 64)),
    }


def _half_vanish(clients: int) -> dict[str, float]:
    """Clients with a stream, a chunk in flight and chunks queued; every other one is gone, in the middle of a run."""
    observed, wrong = ObservedRequests(), 0
    with puppet(lanes=2, max_streams=clients, observers=[observed]) as place:
        streams = [place.model.open_stream() for _ in range(clients)]
        tickets = [[stream.submit(fed(1)) for _ in range(4)] for stream in streams]
        single = [place.model.submit(fed(at)) for at in range(clients)]

        def vanish(_: object) -> None:
            place.hook = lambda _: None
            for at in range(0, clients, 2):
                streams[at].close()
                single[at].cancel()

        place.hook = vanish
        place.release()
        health = place.server.health()
        orphans = place.slots_taken - clients // 2 + health.queued + health.running + len(observed.alive)
        for at in range(1, clients, 2):
            wrong += not is_sum(single[at].result(0), at)
            wrong += sum(not is_sum(ticket.result(0), number + 1) for number, ticket in enumerate(tickets[at]))
            streams[at].close()
    return {"orphans": orphans, "wrong answers of the others": wrong}


def starvation(size: int, timed: bool) -> Figures:
    """Row 17: chunks that would fill the device twice, and a trickle of a low class, for `size` seconds."""
    share = 0.1
    low = ServiceClass("low", soft_ms=1000, hard_ms=None, real_time=False, share=share, priority=-5)
    key = Key("offline", "encoder")
    costs = CostTable()
    costs.add(CHUNKS, {rows: Spread.always(int((4 + 0.35 * rows) * MS)) for rows in (1, 4, 16, 64)})
    costs.add(key, {rows: Spread.always(int((6.2 + 1.25 * rows) * MS)) for rows in (1, 4, 16, 64)})
    tasks = [task_at(CHUNKS, CHUNK, at * MS // 4) for at in range(4 * size * 1000)]
    tasks += [task_at(key, low, at * MS) for at in range(0, size * 1000, 10)]
    traffic, runs = _Once(tasks), list[Run]()
    scheduler = Scheduler(costs)
    end = size * 1000 * MS
    simulate(scheduler, traffic, lambda run: run.expected_ns, end, VirtualClock(), lambda run, now: runs.append(run))
    used = sum(run.expected_ns for run in runs if run.key == key)
    starts = [0, *(run.started for run in runs if run.key == key), end]
    return {
        "share / guaranteed": used / (share * end),
        "longest without a run s": max(b - a for a, b in itertools.pairwise(starts)) / S,
    }


class _Once:
    """Tasks that nothing follows from."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = sorted(tasks, key=lambda task: task.arrival)

    def arrivals(self) -> Iterator[Task]:
        yield from self._tasks

    def done(self, task: Task, now: int) -> Iterable[Task]:
        return ()

    def lost(self, task: Task, reason: str, now: int) -> Iterable[Task]:
        return ()


def mixed(size: int, timed: bool) -> Figures:
    """Row 27: chunks, voices and utterances at just over full load for `size` s; strict priority tuned for it."""
    load = Load(400, (480.0,), size)
    _, [strict] = tune(load, (1,), SWEEP if size > 10 else SWEEP[-1:])
    mine = play(ours(), load, 1)
    return {
        "late chunks": mine.late,
        "voices with a gap": mine.gaps,
        "offline in time": mine.share_in_time(),
        "audio s per s": mine.audio_in_time() / size,
        "audio in time / tuned strict priority": mine.audio_in_time() / strict.audio_in_time(),
        "chunk p99 ms": mine.chunk_percentile_ms(99),
    }


def wrong_costs(size: int, timed: bool) -> Figures:
    """Row 29: a device 0.7 to 2 times as slow as its table says, for `size` seconds, against a table that is right."""
    found: dict[str, float] = {"late chunks": 0.0, "goodput / with the right table": 2.0, "runs to converge": 0.0}
    for factor in (0.7, 1.5, 2.0):
        load = Load(200, (300.0,), size)
        wrong, right = (play(ours(), load, 1, factor=factor, costs=costs) for costs in (mixed_costs(), _scaled(factor)))
        found["late chunks"] = max(found["late chunks"], wrong.late - right.late)
        ratio = wrong.audio_in_time() / right.audio_in_time()
        found["goodput / with the right table"] = min(found["goodput / with the right table"], ratio)
        found["runs to converge"] = max(found["runs to converge"], _runs_to_converge(factor))
    return found


def _scaled(factor: float) -> CostTable:
    costs, real = CostTable(), real_costs(mixed_costs(), factor)
    for key in {key: None for key, _ in real}:
        costs.add(key, {rows: Spread.always(real[key, rows]) for rows in mixed_costs().row_buckets(key)})
    return costs


def _runs_to_converge(factor: float) -> int:
    """Runs after which a plan is no more than 5 % below what a run takes; a plan above it is kept on purpose."""
    costs = RowCosts({1: Spread.always(10 * MS)})
    for runs in range(WINDOW + 1):
        if costs.cost(1) >= 0.95 * 10 * MS * factor:
            return runs
        costs.observe(1, int(10 * MS * factor))
    return WINDOW + 1
