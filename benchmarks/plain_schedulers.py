"""Schedulers to compare with: first in first out, round robin, and strict priority with windows and a cap."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.mixed_traffic import CHUNKS, ROWS, STEPS
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.decision import Decision, Run
from runtime_lite.scheduling.task import Key, Task

NS_PER_MS = 1_000_000
LARGEST = ROWS[-1]


@dataclass(frozen=True)
class Windows:
    """Times for which batches of a model gather, in ms, and the largest number of rows of an utterance batch."""

    steps_ms: float
    chunks_ms: float
    offline_ms: float = 0.0
    offline_cap: int = LARGEST

    def of(self, key: Key) -> tuple[int, int]:
        """Return the window in ns and the largest number of rows of a key."""
        if key == CHUNKS:
            return int(self.chunks_ms * NS_PER_MS), LARGEST
        if key == STEPS:
            return int(self.steps_ms * NS_PER_MS), LARGEST
        return int(self.offline_ms * NS_PER_MS), self.offline_cap


SWEEP = tuple(
    Windows(steps, chunks, 0.0, cap) for steps in (20, 40, 60, 75) for chunks in (80, 160) for cap in (8, 16, 32, 64)
)
"""The 32 settings among which tuned strict priority takes the best for each load."""


class PlainScheduler:
    """Base of plain schedulers: one lane, a queue per group, batches from the front of a queue, and a timeout.

    Args:
        costs: cost table, for the expected cost of runs only.
        windows: times for which batches gather.
    """

    def __init__(self, costs: CostTable, windows: Windows) -> None:
        """Start empty."""
        self._costs = costs
        self._windows = windows
        self._queues: dict[object, deque[Task]] = {}
        self._running: Run | None = None

    def group(self, key: Key) -> object:
        """Return the group of a key; each group has a queue."""
        return key

    def order(self, ready: Sequence[object]) -> object:
        """Return the group that runs next among those that can."""
        raise NotImplementedError

    def submit(self, task: Task, now: int) -> str | None:
        self._queues.setdefault(self.group(task.key), deque()).append(task)
        return None

    def finished(self, run: Run, now: int, failed: bool = False) -> None:
        self._running = None

    def decide(self, now: int) -> Decision:
        dropped: list[tuple[Task, str]] = []
        if self._running is not None:
            return Decision(None, dropped, None)
        ready, wake = [], None
        for group, queue in self._queues.items():
            while queue and (hard := queue[0].hard) is not None and hard < now:
                dropped.append((queue.popleft(), "timeout"))
            if queue:
                window, most = self._windows.of(queue[0].key)
                at = queue[0].arrival + window
                if at <= now or len(queue) >= most:
                    ready.append(group)
                else:
                    wake = at if wake is None else min(wake, at)
        if not ready:
            return Decision(None, dropped, wake)
        self._running = self._batch(self._queues[self.order(ready)], now)
        return Decision(self._running, dropped, None)

    def _batch(self, queue: deque[Task], now: int) -> Run:
        """Take tasks from the front of a queue until the batch is full or the shape changes."""
        key = queue[0].key
        _, most = self._windows.of(key)
        tasks: list[Task] = []
        while queue and queue[0].key == key and len(tasks) < most:
            tasks.append(queue.popleft())
        rows = next(size for size in ROWS if size >= len(tasks))
        return Run(key, rows, tasks, now, self._costs.cost(key, rows))

    def oldest(self, groups: Iterable[object]) -> object:
        """Return the group whose first task came first."""
        return min(groups, key=lambda group: self._queues[group][0].arrival)


class Fifo(PlainScheduler):
    """A queue per model; the queue with the oldest first task runs."""

    def __init__(self, costs: CostTable) -> None:
        """Start empty; batches gather for 5 ms."""
        super().__init__(costs, Windows(5, 5, 5))

    def group(self, key: Key) -> object:
        return key.model

    def order(self, ready: Sequence[object]) -> object:
        return self.oldest(ready)


class RoundRobin(PlainScheduler):
    """A queue per key; each runs in turn."""

    def __init__(self, costs: CostTable) -> None:
        """Start empty; chunks gather for 80 ms, utterances run in eights."""
        super().__init__(costs, Windows(0, 80, 0, 8))
        self._turn: dict[object, int] = {}
        self._count = 0

    def order(self, ready: Sequence[object]) -> object:
        chosen = min(ready, key=lambda group: self._turn.get(group, 0))
        self._count += 1
        self._turn[chosen] = self._count
        return chosen


class Strict(PlainScheduler):
    """A queue per key; chunks run before steps before utterances, the oldest first task first."""

    def order(self, ready: Sequence[object]) -> object:
        ranks: Mapping[object, int] = {CHUNKS: 0, STEPS: 1}
        first = min(ranks.get(group, 2) for group in ready)
        return self.oldest(group for group in ready if ranks.get(group, 2) == first)
