"""Computes how many streams a machine can serve in time, by running the scheduler on a virtual clock.

Of 100 simulated runs one takes the 99th percentile of the cost table, nine the 95th, and the others the median. Streams
begin at random times of their period and send a chunk per period; other requests come at random times. A number of
streams is carried if all are admitted and few enough chunks are late. Admission leaves other work its share of the
lanes; without it, streams may use the whole machine.

Streams that would send more than `MOST_CHUNKS` chunks are simulated in groups: one simulated stream stands for `grain`
streams, on a machine that is `grain` times slower. Then the utilisation, the chunks per run and the growth of a backlog
are the same; only runs take longer, so that latencies are upper bounds.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.cost_table import WINDOW, CostTable, Spread
from runtime_lite.scheduling.decision import Run
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.simulation import simulate
from runtime_lite.scheduling.task import CHUNK, UTTERANCE, Key, ServiceClass, Task, task_at

Measured = Mapping[Key, Mapping[int, Spread]]
"""Measured times by key and rows."""

MOST_CHUNKS = 20_000
"""Largest number of chunks of one simulation, which takes a quarter of a second."""

COARSEST = 0.25
"""Longest run, as part of the soft target, up to which a simulated stream may stand for several."""

FINEST = 200
"""Precision of the search for the most streams: one in this many."""

GROWTH = 1.25
"""Factor from a number of streams that is carried to the next one that is tried."""


@dataclass(frozen=True)
class Machine:
    """The machine that a plan is computed for.

    Attributes:
        costs: measured times of every key.
        lanes: runs that may be in flight at once; the costs are those with all lanes busy.
    """

    costs: Measured
    lanes: int


@dataclass(frozen=True)
class Work:
    """The load that a plan is computed for.

    Attributes:
        streams: keys of the streams; each gets the same number of streams.
        requests: keys of single requests.
        period_ns: nanoseconds between two chunks of a stream.
        late_ns: nanoseconds after which a chunk is late.
        service: service class of the chunks.
        requests_per_s: single requests per second and key.
        seconds: simulated time.
        seed: seed of all random numbers.
        most_late: largest allowed part of late chunks.
        admission: whether streams may be refused, as the runtime does if they are opened with a period.
    """

    streams: tuple[Key, ...]
    requests: tuple[Key, ...]
    period_ns: int
    late_ns: int
    service: ServiceClass = CHUNK
    requests_per_s: float = 0.0
    seconds: float = 20.0
    seed: int = 1
    most_late: float = 0.0
    admission: bool = True


@dataclass(frozen=True)
class Plan:
    """The result of a simulation of a number of streams.

    Attributes:
        streams: number of streams per key that were asked for.
        refused: number of streams of all keys that were refused.
        utilisation: part of the lanes' time that runs took.
        p50_ms: median latency of chunks, 0 without any; an upper bound where streams were grouped.
        p99_ms: 99th percentile of the latency, likewise.
        late: part of the chunks that were late.
        holds: whether all streams are carried: none was refused, and few enough chunks were late.
        requests_in_time: part of the single requests answered before their deadline; 1 without any.
        grain: number of streams that one simulated stream stands for.
    """

    streams: int
    refused: int
    utilisation: float
    p50_ms: float
    p99_ms: float
    late: float
    holds: bool
    requests_in_time: float
    grain: int = 1


def plan_streams(machine: Machine, work: Work, streams: int) -> Plan:
    """Simulate a number of streams per key and return the result."""
    grain = _grain(machine, work, streams)
    measured = _slower(machine.costs, grain)
    costs = _learnt(measured)
    scheduler = Scheduler(costs, machine.lanes)
    groups = math.ceil(streams / grain)
    numbers = [
        (key, position * groups + number) for position, key in enumerate(work.streams) for number in range(groups)
    ]
    admitted = [
        (key, number)
        for key, number in numbers
        if not work.admission or scheduler.open_stream(number, key, work.service, work.period_ns) is None
    ]
    traffic = _Traffic(work, admitted, work.requests_per_s / grain)
    draw, busy = random.Random(work.seed), 0

    def took(run: Run) -> int:
        nonlocal busy
        ns = measured[run.key][run.rows].at(draw.random())
        busy += ns
        return ns

    end = int(work.seconds * 1000 * NS_PER_MS)
    simulate(scheduler, traffic, took, end + 4 * work.period_ns, VirtualClock())
    latencies = sorted(traffic.latencies)
    late = (sum(ns > work.late_ns for ns in latencies) + traffic.unanswered) / max(traffic.chunks, 1)
    refused = grain * (len(numbers) - len(admitted))
    return Plan(
        streams=streams,
        refused=refused,
        utilisation=busy / (end * machine.lanes),
        p50_ms=_percentile(latencies, 50),
        p99_ms=_percentile(latencies, 99),
        late=late,
        holds=refused == 0 and late <= work.most_late,
        requests_in_time=traffic.in_time / traffic.requests if traffic.requests else 1.0,
        grain=grain,
    )


def _grain(machine: Machine, work: Work, streams: int) -> int:
    """Return the number of streams that one simulated stream stands for."""
    chunks = streams * len(work.streams) * work.seconds * 1000 * NS_PER_MS / work.period_ns
    longest = max(spread.p99 for rows in machine.costs.values() for spread in rows.values())
    target = min(work.service.soft_ms * NS_PER_MS, work.late_ns)
    return max(min(math.ceil(chunks / MOST_CHUNKS), int(COARSEST * target / max(longest, 1))), 1)


def _slower(measured: Measured, factor: int) -> Measured:
    return {
        key: {size: Spread(*(ns * factor for ns in spread)) for size, spread in rows.items()}
        for key, rows in measured.items()
    }


def _learnt(measured: Measured) -> CostTable:
    """Return the cost table of a runtime after some runs of every bucket."""
    costs = CostTable()
    for key, rows in measured.items():
        costs.add(key, rows)
        for run in range(WINDOW):
            for size, spread in rows.items():  # in turns: what has not run for long is forgotten
                costs.observe(key, size, spread.at((run + 0.5) / WINDOW))
    return costs


def most_streams(machine: Machine, work: Work, told: Callable[[int], None] = lambda streams: None) -> Plan:
    """Return the plan of the largest number of streams per key that is carried; it may be 0.

    Args:
        machine: the machine.
        work: the kind of work.
        told: called with each number of streams before it is tried.
    """

    def tried(streams: int) -> Plan:
        told(streams)
        return plan_streams(machine, work, streams)

    plan = tried(_about(machine, work))
    while plan.holds:
        best, plan = plan, tried(math.ceil(GROWTH * plan.streams))
        if not plan.holds:
            return _between(best, plan.streams, tried)
    while plan.streams:
        over, plan = plan.streams, tried(plan.streams // 2)
        if plan.holds:
            return _between(plan, over, tried)
    return plan


def _about(machine: Machine, work: Work) -> int:
    """Return the number of streams per key that would fill the lanes in the cheapest buckets; at least one.

    The search starts there; its result does not depend on it.
    """
    rates = (min(spread.average / rows for rows, spread in machine.costs[key].items()) for key in work.streams)
    return max(round(machine.lanes * work.period_ns / max(sum(rates), 1.0)), 1)


def _between(best: Plan, over: int, tried: Callable[[int], Plan]) -> Plan:
    """Return the plan of the most streams that are carried, between a plan that is and `over` streams that are not."""
    while over - best.streams > max(1, best.streams // FINEST):
        plan = tried((best.streams + over) // 2)
        if plan.holds:
            best = plan
        else:
            over = plan.streams
    return best


class _Traffic:
    """Chunks of streams and single requests; records their latencies."""

    def __init__(self, work: Work, streams: Sequence[tuple[Key, int]], requests_per_s: float) -> None:
        self._work, self._requests_per_s = work, requests_per_s
        self._draw = random.Random(work.seed)
        self._phases = sorted((self._draw.randrange(work.period_ns), number, key) for key, number in streams)
        self.latencies: list[int] = []
        self.chunks = self.requests = self.in_time = 0

    @property
    def unanswered(self) -> int:
        return self.chunks - len(self.latencies)

    def arrivals(self) -> Iterator[Task]:
        yield from merge(self._chunks(), *map(self._single, self._work.requests), key=lambda task: task.arrival)

    def _chunks(self) -> Iterator[Task]:
        work = self._work
        for period in range(0, int(work.seconds * 1000 * NS_PER_MS), work.period_ns):
            for phase, number, key in self._phases:
                self.chunks += 1
                yield task_at(key, work.service, period + phase, stream=number)

    def _single(self, key: Key) -> Iterator[Task]:
        if not self._requests_per_s:
            return
        draw, at = random.Random(self._draw.random()), 0.0
        while (at := at + draw.expovariate(self._requests_per_s)) < self._work.seconds:
            self.requests += 1
            yield task_at(key, UTTERANCE, int(at * 1000 * NS_PER_MS))

    def done(self, task: Task, now: int) -> Iterable[Task]:
        if task.service is self._work.service:
            self.latencies.append(now - task.arrival)
        elif task.hard is not None and now <= task.hard:
            self.in_time += 1
        return ()

    def lost(self, task: Task, reason: str, now: int) -> Iterable[Task]:
        return ()


def _percentile(ordered: Sequence[int], percent: int) -> float:
    return ordered[(len(ordered) - 1) * percent // 100] / NS_PER_MS if ordered else 0.0
