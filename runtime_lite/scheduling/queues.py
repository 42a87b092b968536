"""Queues: tasks of one class and key by their soft targets, those of a stream in turn, and timers for what is dropped.

A task that leaves early (cancelled, dropped) is not searched for: its entry stays in the heap, is skipped when it comes
up, and is swept out once such entries are the majority. So every operation is O(log n), amortised.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import RowCosts
from runtime_lite.scheduling.task import QUEUED, RUSHED, WAITING, Key, ServiceClass, Task

SWEEP_AT = 64
"""Heaps shorter than this are never swept."""

RATE_NS = 500 * NS_PER_MS
"""Time over which the rate of arrivals is averaged: some periods of streams, and less than callers notice."""

CREDITS = 8
"""Chunks of one stream that may be here at once, the one in flight included."""

NO_CREDIT = "credits"
"""Reason of a refusal: that many are here."""

LIVE_NS = 2_000 * NS_PER_MS
"""A real-time queue that got a task of no announced stream within this time may get the next at any moment."""


class TaskHeap:
    """Tasks in some states by a time; the first pushed of equal times comes first.

    Args:
        states: an entry counts while its task is in one of them.
    """

    __slots__ = ("_entries", "_number", "_states", "live")

    def __init__(self, *states: str) -> None:
        """Start empty."""
        self._entries: list[tuple[int, int, Task]] = []
        self._states = states
        self._number = 0
        self.live = 0

    def push(self, time: int, task: Task) -> None:
        """Enter a task that is in one of the states."""
        self._number += 1
        self.live += 1
        heappush(self._entries, (time, self._number, task))

    def first(self) -> tuple[int, int, Task] | None:
        """Return time, number and task of the first entry that counts, or None."""
        entries = self._entries
        while entries:
            if entries[0][2].state in self._states:
                return entries[0]
            heappop(entries)
        return None

    def pop(self) -> Task:
        """Take the entry that `first` has returned."""
        self.live -= 1
        return heappop(self._entries)[2]

    def left(self) -> None:
        """Note that a task has left the states."""
        self.live -= 1
        if len(self._entries) > SWEEP_AT and 2 * self.live < len(self._entries):
            self._entries = [entry for entry in self._entries if entry[2].state in self._states]
            heapify(self._entries)


class TaskQueue:
    """Tasks of one class and one key.

    Attributes:
        service: the class.
        key: the key.
        costs: of its key.
        soft_ns: soft target of the class.
        due: tasks in the order of their soft targets.
        rushed: tasks whose hard deadline an efficient run would miss, but a smaller one would not.
        rows: rows of all its tasks.
        due_rows: rows of those in `due`.
        worth: worth of all its tasks.
        owed: device time in ns that the queue was promised within its class and has not got.
        streams: announced streams that send to it.
        last_unannounced: when the last task came that belongs to none of them.
        last_cost: what its last run was expected to take.
        newest_soft: the latest soft target ever queued.
    """

    __slots__ = (
        "_expected",
        "_rate",
        "_rate_at",
        "costs",
        "due",
        "due_rows",
        "key",
        "last_cost",
        "last_unannounced",
        "newest_soft",
        "owed",
        "rows",
        "rushed",
        "service",
        "soft_ns",
        "streams",
        "worth",
    )

    def __init__(self, service: ServiceClass, key: Key, costs: RowCosts) -> None:
        """Start empty."""
        self.service = service
        self.key = key
        self.costs = costs
        self.soft_ns = int(service.soft_ms * NS_PER_MS)
        self.due = TaskHeap(QUEUED)
        self.rushed = TaskHeap(RUSHED)
        self.rows = 0
        self.due_rows = 0
        self.worth = 0.0
        self.owed = 0.0
        self.streams = 0
        self.last_unannounced = -(1 << 62)
        self.last_cost = costs.buckets[0].plan
        self.newest_soft = 0
        self._expected: list[int] = []
        self._rate = 0.0
        self._rate_at = 0

    def note_arrival(self, rows: int, now: int) -> None:
        """Count rows that were submitted."""
        self._rate = self.rows_per_ns(now) + rows / RATE_NS
        self._rate_at = now

    def rows_per_ns(self, now: int) -> float:
        """Return the rate at which rows come, averaged over `RATE_NS` with weights that fall exponentially."""
        return self._rate * math.exp((self._rate_at - now) / RATE_NS)

    def push(self, task: Task) -> None:
        """Queue a task."""
        task.state = QUEUED
        self.rows += task.rows
        self.due_rows += task.rows
        self.worth += task.worth
        if task.soft > self.newest_soft:
            self.newest_soft = task.soft
        self.due.push(task.soft, task)

    def rush(self) -> None:
        """Set the head of `due` aside: only a smaller run can still answer it in time."""
        task = self.due.pop()
        self.due_rows -= task.rows
        task.state = RUSHED
        self.rushed.push(task.soft, task)

    def take(self, heap: TaskHeap, state: str) -> Task:
        """Take the first task of a heap of this queue."""
        task = heap.pop()
        self._forget(task, state)
        return task

    def remove(self, task: Task, state: str) -> None:
        """Take a queued task out, wherever it stands."""
        heap = self.due if task.state == QUEUED else self.rushed
        self._forget(task, state)
        heap.left()

    def _forget(self, task: Task, state: str) -> None:
        if task.state == QUEUED:
            self.due_rows -= task.rows
        task.state = state
        self.rows -= task.rows
        self.worth = self.worth - task.worth if self.rows else 0.0

    def expect(self, time: int) -> None:
        """Note that a stream will send its next chunk about then."""
        heappush(self._expected, time)

    def next_expected(self, now: int) -> int | None:
        """Return when the next chunk should come, or None; those that are overdue are no longer waited for."""
        while self._expected and self._expected[0] <= now:
            heappop(self._expected)
        return self._expected[0] if self._expected else None

    def may_come(self, now: int) -> tuple[int | None, int]:
        """Return when the next task may come to a real-time queue, None for not soon; and until when that holds."""
        if self.streams:
            expected = self.next_expected(now)
            return (now, now + LIVE_NS) if expected is None else (expected, expected)
        until = self.last_unannounced + LIVE_NS
        return (now if now < until else None), until


@dataclass(slots=True)
class OpenStream:
    """A stream that tasks belong to.

    Attributes:
        queue: where its chunks are queued; None until the first if nobody has announced it.
        period: nanoseconds from chunk to chunk; None where no next chunk is to be expected.
        current: its task that is queued or running, or None.
        waiting: the tasks behind it, in order.
        closed: no further task comes; it is forgotten with the last.
    """

    queue: TaskQueue | None = None
    period: int | None = None
    current: Task | None = None
    waiting: deque[Task] = field(default_factory=deque)
    closed: bool = False


class StreamOrder:
    """Lets tasks of a stream be queued one after the other: one is here, and further ones wait, at most `CREDITS`."""

    def __init__(self) -> None:
        """Start without streams."""
        self._open: dict[int, OpenStream] = {}

    def enter(self, task: Task, number: int) -> OpenStream | str:
        """Take in a task of a stream, as its current one or waiting behind that; or return why it is refused."""
        stream = self._open.get(number)
        if stream is None:
            stream = self._open[number] = OpenStream()
        if stream.current is None:
            stream.current = task
        elif len(stream.waiting) + 1 >= CREDITS:
            return NO_CREDIT
        else:
            task.state = WAITING
            stream.waiting.append(task)
        return stream

    def leave(self, task: Task, number: int) -> Task | None:
        """Let go of a task that has ended; return the next of its stream if that may be queued now."""
        stream = self._open[number]
        if task is not stream.current:
            stream.waiting.remove(task)
            return None
        stream.current = stream.waiting.popleft() if stream.waiting else None
        if stream.current is None and (stream.closed or stream.period is None):
            del self._open[number]
        return stream.current
