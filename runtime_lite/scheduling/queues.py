"""Queues: tasks of one class and key in the order of their soft targets, and timers for what may be dropped.

A task that leaves early (cancelled, dropped) is not searched for: its entry stays in the heap, is skipped when it comes
up, and is swept out once such entries are the majority. So every operation is O(log n), amortised.
"""

from heapq import heapify, heappop, heappush

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import BucketCost
from runtime_lite.scheduling.task import QUEUED, RUSHED, Key, ServiceClass, Task

SWEEP_AT = 64
"""Heaps shorter than this are never swept."""


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
        entries: rows and cost of every row bucket, ascending.
        soft_ns: soft target of the class.
        due: tasks in the order of their soft targets.
        rushed: tasks whose hard deadline an efficient run would miss, but a smaller one would not.
        rows: rows of all its tasks.
        worth: worth of all its tasks.
        owed: device time in ns that the queue was promised within its class and has not got.
        streams: announced streams that send to it.
        last_unannounced: when the last task came that belongs to none of them.
        last_cost: what its last run was expected to take.
        newest_soft: the latest soft target ever queued.
    """

    __slots__ = (
        "_expected",
        "due",
        "entries",
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

    def __init__(self, service: ServiceClass, key: Key, entries: tuple[tuple[int, BucketCost], ...]) -> None:
        """Start empty."""
        self.service = service
        self.key = key
        self.entries = entries
        self.soft_ns = int(service.soft_ms * NS_PER_MS)
        self.due = TaskHeap(QUEUED)
        self.rushed = TaskHeap(RUSHED)
        self.rows = 0
        self.worth = 0.0
        self.owed = 0.0
        self.streams = 0
        self.last_unannounced = -(1 << 62)
        self.last_cost = entries[0][1].plan
        self.newest_soft = 0
        self._expected: list[int] = []

    def push(self, task: Task) -> None:
        """Queue a task."""
        task.state = QUEUED
        self.rows += task.rows
        self.worth += task.worth
        if task.soft > self.newest_soft:
            self.newest_soft = task.soft
        self.due.push(task.soft, task)

    def rush(self) -> None:
        """Set the head of `due` aside: only a smaller run can still answer it in time."""
        task = self.due.pop()
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
        task.state = state
        self.rows -= task.rows
        self.worth = self.worth - task.worth if self.rows else 0.0

    def best_rate(self) -> float:
        """Return the least cost per row that the table offers, in ns."""
        return min(entry.plan / rows for rows, entry in self.entries)

    def cost_of(self, rows: int) -> int:
        """Return the cost of a run of the smallest bucket that holds some rows, or of the largest."""
        return next((entry.plan for size, entry in self.entries if size >= rows), self.entries[-1][1].plan)

    def expect(self, time: int) -> None:
        """Note that a stream will send its next chunk about then."""
        heappush(self._expected, time)

    def next_expected(self, now: int) -> int | None:
        """Return when the next chunk should come, or None; those that are overdue are no longer waited for."""
        while self._expected and self._expected[0] <= now:
            heappop(self._expected)
        return self._expected[0] if self._expected else None

    def best_bucket(self, least: int, rows: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, that begins to clear the queue at the least total cost.

        So a batch is padded to a larger bucket, or split, by what is measured. Of equal totals the least cost per row
        wins, then the smaller bucket, which answers sooner.

        Args:
            least: rows that it must hold, at most the largest bucket.
            rows: rows that are queued, at least as many.
        """
        best = None
        for size, entry in self.entries:
            if size >= least:
                rank = (entry.plan + self._clearing(rows - size), entry.plan / min(rows, size))
                if best is None or rank < best[0]:
                    best = rank, (size, entry.plan)
            if size >= rows:
                break
        assert best is not None
        return best[1]

    def best_bucket_within(self, room: int, least: int, rows: int) -> tuple[int, int] | None:
        """Return the row bucket of the least cost per row among those that cost at most some room, or None."""
        best = None
        for size, entry in self.entries:
            if size >= least and entry.plan <= room:
                rate = entry.plan / min(rows, size)
                if best is None or rate < best[0]:
                    best = rate, (size, entry.plan)
            if size >= rows:
                break
        return None if best is None else best[1]

    def _clearing(self, rows: int) -> float:
        """Return about what it costs to run some more rows."""
        if rows <= 0:
            return 0.0
        return self.cost_of(rows) if rows <= self.entries[-1][0] else rows * self.best_rate()
