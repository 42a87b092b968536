"""Queues tasks of one class and key by their soft targets, and keeps the order of tasks within streams.

The entry of a task that leaves early (cancelled, dropped) stays in the heap. It is skipped when it comes first, and
removed once such entries are the majority. So every operation takes O(log n), amortised.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import RowCosts
from runtime_lite.scheduling.task import QUEUED, RUSHED, WAITING, Key, ServiceClass, Task

SWEEP_AT = 64
"""Heaps shorter than this keep the entries of tasks that have left."""

RATE_NS = 500 * NS_PER_MS
"""Time in nanoseconds over which the rate of arrivals is averaged: some periods of streams."""

CREDITS = 8
"""Number of chunks of one stream that may be queued at once, including the one in flight."""

NO_CREDIT = "credits"
"""Reason of a refusal: `CREDITS` chunks of the stream are queued."""

LIVE_NS = 2_000 * NS_PER_MS
"""Time in ns after a task of no announced stream within which a real-time queue may get another at any moment."""


class TaskHeap:
    """Tasks ordered by a time; of equal times the one pushed first comes first.

    Args:
        states: an entry is valid while its task is in one of these states.
    """

    __slots__ = ("_entries", "_number", "_states", "live")

    def __init__(self, *states: str) -> None:
        """Start empty."""
        self._entries: list[tuple[int, int, Task]] = []
        self._states = states
        self._number = 0
        self.live = 0

    def push(self, time: int, task: Task) -> None:
        """Add a task that is in one of the states."""
        self._number += 1
        self.live += 1
        heappush(self._entries, (time, self._number, task))

    def first(self) -> tuple[int, int, Task] | None:
        """Return time, number and task of the first valid entry, or None."""
        entries = self._entries
        while entries:
            if entries[0][2].state in self._states:
                return entries[0]
            heappop(entries)
        return None

    def pop(self) -> Task:
        """Remove the entry that `first` has returned."""
        self.live -= 1
        return heappop(self._entries)[2]

    def left(self) -> None:
        """Record that a task has left the states."""
        self.live -= 1
        if len(self._entries) > SWEEP_AT and 2 * self.live < len(self._entries):
            self._entries = [entry for entry in self._entries if entry[2].state in self._states]
            heapify(self._entries)


class TaskQueue:
    """Tasks of one class and one key.

    Attributes:
        service: the class.
        key: the key.
        costs: costs of the key.
        soft_ns: soft target of the class.
        due: tasks in the order of their soft targets.
        rushed: tasks whose hard deadline an efficient run would miss and a smaller one meets.
        rows: rows of all its tasks.
        due_rows: rows of the tasks in `due`.
        worth: sum of the worth of all its tasks.
        owed: device time in ns that the queue is still entitled to within its class.
        streams: number of announced streams that send to it.
        last_unannounced: time of arrival of the last task that belongs to none of these streams.
        last_cost: expected nanoseconds of its last run.
        newest_soft: the latest soft target that was ever queued.
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
        """Update the rate of arrivals with submitted rows."""
        self._rate = self.rows_per_ns(now) + rows / RATE_NS
        self._rate_at = now

    def rows_per_ns(self, now: int) -> float:
        """Return the rate of arriving rows, averaged over `RATE_NS` with weights that fall exponentially."""
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
        """Move the first task of `due` to `rushed`, as only a smaller run can still answer it in time."""
        task = self.due.pop()
        self.due_rows -= task.rows
        task.state = RUSHED
        self.rushed.push(task.soft, task)

    def take(self, heap: TaskHeap, state: str) -> Task:
        """Remove and return the first task of a heap of this queue, and set its state."""
        task = heap.pop()
        self._forget(task, state)
        return task

    def remove(self, task: Task, state: str) -> None:
        """Remove a queued task at any position, and set its state."""
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
        """Record the time at which a stream is expected to send its next chunk."""
        heappush(self._expected, time)

    def next_expected(self, now: int) -> int | None:
        """Return the time of the next expected chunk, or None; overdue ones are not expected any more."""
        while self._expected and self._expected[0] <= now:
            heappop(self._expected)
        return self._expected[0] if self._expected else None

    def may_come(self, now: int) -> tuple[int | None, int]:
        """Return when the next task may come to a real-time queue, None for not soon; and until when this holds."""
        if self.streams:
            expected = self.next_expected(now)
            return (now, now + LIVE_NS) if expected is None else (expected, expected)
        until = self.last_unannounced + LIVE_NS
        return (now if now < until else None), until


@dataclass(slots=True)
class OpenStream:
    """A stream, as the order of its tasks needs it.

    Attributes:
        queue: the queue of its chunks; None for a stream that was not announced.
        period: nanoseconds between two chunks; None if unknown.
        current: its task that is queued or running, or None.
        waiting: the tasks behind it, in order.
        closed: whether no further task comes; the stream is forgotten after its last task.
    """

    queue: TaskQueue | None = None
    period: int | None = None
    current: Task | None = None
    waiting: deque[Task] = field(default_factory=deque)
    closed: bool = False


class StreamOrder:
    """Queues the tasks of a stream one after the other: one is queued or runs, at most `CREDITS` - 1 wait."""

    def __init__(self) -> None:
        """Start without streams."""
        self._open: dict[int, OpenStream] = {}

    def enter(self, task: Task, number: int) -> OpenStream | str:
        """Add a task of a stream, as its current or as a waiting one; or return why it is refused."""
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
        """Remove a task that has ended; return the next of its stream if it may be queued now."""
        stream = self._open[number]
        if task is not stream.current:
            stream.waiting.remove(task)
            return None
        stream.current = stream.waiting.popleft() if stream.waiting else None
        if stream.current is None and (stream.closed or stream.period is None):
            del self._open[number]
        return stream.current
