"""Records of the scheduler's decisions and settings, which its owner and its tests share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.task import Key, Task


@dataclass(frozen=True, slots=True)
class Policy:
    """What was settled by measurement (`benchmarks/scheduling.py`).

    Attributes:
        floor_ms: efficient work that is entitled to a run and has waited long may always run so long.
        floor_always: so may all efficient work.
        cap: efficient work may not block the lanes for longer than real-time work that could come meanwhile can wait.
        guard_ms: kept between efficient work and the latest start of real-time work.
        ripe: a real-time batch runs before efficient work when its cost per row is within this factor of the best.
        wait: a real-time batch that is not ripe waits for the next expected chunk while nothing else is to do.
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
    """One decided run: the rows of some tasks together.

    Attributes:
        key: the bucket of every axis but that of rows.
        rows: the row bucket; the tasks may take fewer.
        tasks: whose rows they are, in order.
        started: when it was decided.
        expected_ns: what it should take.
    """

    key: Key
    rows: int
    tasks: list[Task]
    started: int
    expected_ns: int


class Decision(NamedTuple):
    """What `decide` says.

    Attributes:
        run: what to execute now, or None.
        dropped: tasks that have ended, each with the reason.
        wake: when to ask again if nothing happens before, or None.
    """

    run: Run | None
    dropped: Sequence[tuple[Task, str]]
    wake: int | None


class Plan(NamedTuple):
    """A run that could be.

    Attributes:
        queue: whose head it answers.
        cost: of the planned row bucket.
        rows: the planned row bucket.
        latest: when it must start for the head to meet its target.
        ripe: nothing is gained by starting later.
        entitled: its class claims it.
    """

    queue: TaskQueue
    rows: int
    cost: int
    latest: int
    ripe: bool
    entitled: bool = False
