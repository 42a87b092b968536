"""Simulates a device on a virtual clock: runs the real scheduler under generated traffic.

Tests, benchmarks and the planner use the same loop. The caller determines the durations of runs; the scheduler's costs
may differ from them.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from runtime_lite.scheduling.clock import VirtualClock
from runtime_lite.scheduling.decision import Decision, Run
from runtime_lite.scheduling.task import Task


class Decides(Protocol):
    """The scheduler, or another one to compare it with."""

    def submit(self, task: Task, now: int) -> str | None: ...

    def decide(self, now: int) -> Decision: ...

    def finished(self, run: Run, now: int, failed: bool = False) -> None: ...


class Traffic(Protocol):
    """The tasks that arrive, and those that follow from answers and losses."""

    def arrivals(self) -> Iterator[Task]:
        """Yield tasks in the order of their arrivals."""
        ...

    def done(self, task: Task, now: int) -> Iterable[Task]:
        """Return the tasks that follow an answer; they arrive now or later."""
        ...

    def lost(self, task: Task, reason: str, now: int) -> Iterable[Task]:
        """Return the tasks that follow a refusal or a drop, such as a retry."""
        ...


def simulate(
    scheduler: Decides,
    traffic: Traffic,
    cost_ns: Callable[[Run], int],
    end: int,
    clock: VirtualClock,
    hear: Callable[[Run, int], None] = lambda run, now: None,
) -> None:
    """Run traffic through a scheduler until a time.

    Args:
        scheduler: decides the runs.
        traffic: the tasks.
        cost_ns: returns the real duration of a run in nanoseconds.
        end: time at which to stop, without waiting for runs in flight.
        clock: advanced to the time of each event.
        hear: called with every run and the time of its end.
    """
    arrivals = traffic.arrivals()
    following: list[tuple[int, int, Task]] = []
    ends: list[tuple[int, int, Run]] = []
    number = 0
    coming = next(arrivals, None)
    wake: int | None = None

    def follow(tasks: Iterable[Task]) -> None:
        nonlocal number
        for task in tasks:
            number += 1
            heappush(following, (task.arrival, number, task))

    while True:
        times = [ends[0][0]] if ends else []
        times += [following[0][0]] if following else []
        times += [coming.arrival] if coming is not None else []
        times += [wake] if wake is not None else []
        if not times or min(times) > end:
            return
        clock.advance_to(max(min(times), clock()))
        now = clock()
        while ends and ends[0][0] <= now:
            run = heappop(ends)[2]
            scheduler.finished(run, now)
            hear(run, now)
            for task in run.tasks:
                follow(traffic.done(task, now))
        while coming is not None and coming.arrival <= now:
            follow([coming])
            coming = next(arrivals, None)
        while following and following[0][0] <= now:
            task = heappop(following)[2]
            reason = scheduler.submit(task, now)
            if reason is not None:
                follow(traffic.lost(task, reason, now))
        while True:
            run_or_none, dropped, wake = scheduler.decide(now)
            for task, reason in dropped:
                follow(traffic.lost(task, reason, now))
            if run_or_none is None:
                break
            number += 1
            heappush(ends, (now + cost_ns(run_or_none), number, run_or_none))
