"""Defines the records of the scheduler's decisions and settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.task import Key, Task


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of the scheduler; the defaults were chosen by measurement (`benchmarks/scheduling.py`).

    Attributes:
        floor_ms: run time that entitled efficient work is always allowed once it has waited for long.
        floor_always: whether all efficient work is allowed that run time.
        cap: whether the run time of efficient work is limited by how long real-time work can wait that may come in the
            meantime.
        guard_ms: time between the end of efficient work and the latest start of real-time work.
        ripe: a real-time batch runs before efficient work if its cost per row is at most this multiple of the best.
        wait: whether a real-time batch that is not ripe waits for the next expected chunk if there is no other work.
        bucket_share: part of the device time of a class that is divided equally among its buckets.
    """

    floor_ms: float = 35.0
    floor_always: bool = False
    cap: bool = True
    guard_ms: float = 2.0
    ripe: float = 1.2
    wait: bool = False
    bucket_share: float = 1.0


SETTLED = Policy()


@dataclass(slots=True, eq=False)
class Run:
    """One decided run of the rows of some tasks.

    Attributes:
        key: the bucket of every axis but that of rows.
        rows: the row bucket; the tasks may have fewer rows.
        tasks: the tasks, in the order of their rows.
        started: time of the decision.
        expected_ns: expected duration in nanoseconds.
    """

    key: Key
    rows: int
    tasks: list[Task]
    started: int
    expected_ns: int


class Decision(NamedTuple):
    """The result of `decide`.

    Attributes:
        run: the run to execute now, or None.
        dropped: tasks that have ended, each with the reason.
        wake: time at which to call `decide` again if nothing happens before, or None.
    """

    run: Run | None
    dropped: Sequence[tuple[Task, str]]
    wake: int | None


class Plan(NamedTuple):
    """A possible run.

    Attributes:
        queue: the queue whose first task it runs.
        cost: expected nanoseconds of a run in the planned row bucket.
        rows: the planned row bucket.
        latest: latest start at which the first task meets its target.
        ripe: whether a later start gains nothing.
        entitled: whether its class claims it from its share.
    """

    queue: TaskQueue
    rows: int
    cost: int
    latest: int
    ripe: bool
    entitled: bool = False
