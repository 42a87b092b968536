"""Admits streams by utilisation, and single tasks if they can still be answered in time.

streams       the time that their chunks take of the lanes, at the batch that their number lets form, stays at or below
              `MAX_UTILISATION`
single tasks  refused if the work queued before them and their own run would end after the hard deadline; work that runs
              before them counts `OVERTAKEN` times, because more of it will come
"""

from collections.abc import Iterable

from runtime_lite.scheduling.cost_table import RowCosts
from runtime_lite.scheduling.queues import OpenStream, StreamOrder, TaskQueue
from runtime_lite.scheduling.task import BULK, UTTERANCE, ServiceClass, Task

MAX_UTILISATION = 1.0 - UTTERANCE.share - BULK.share
"""Part of the lanes' time that streams may take on average: all but the guaranteed shares of other work."""

OVERTAKEN = 2.5
"""Factor on the work in other queues that runs before a task: these queues get more work while the task waits."""

FULL = "utilisation"
TOO_LATE = "cannot be answered in time"
TOO_LARGE = "more rows than the largest bucket"


class Streams(StreamOrder):
    """The streams of one device, and their admission.

    Args:
        lanes: runs that may be in flight at once.
    """

    def __init__(self, lanes: int) -> None:
        """Start without streams."""
        super().__init__()
        self._lanes = lanes
        self._groups: dict[tuple[TaskQueue, int], int] = {}

    def open(self, number: int, queue: TaskQueue, period: int) -> str | None:
        """Add a stream that sends a chunk per period; return why it is refused, or None."""
        group = (queue, period)
        self._groups[group] = self._groups.get(group, 0) + 1
        if self.utilisation() > MAX_UTILISATION:
            self._leave(group)
            return FULL
        self._open[number] = OpenStream(queue, period)
        queue.streams += 1
        return None

    def close(self, number: int) -> None:
        """Record that a stream sends no more chunks; queued ones stay. Does nothing for an unknown or closed stream."""
        stream = self._open.get(number)
        if stream is None or stream.closed:
            return
        stream.closed = True
        if stream.queue is not None and stream.period is not None:
            stream.queue.streams -= 1
            self._leave((stream.queue, stream.period))
        if stream.current is None:
            del self._open[number]

    def resize(self, lanes: int) -> None:
        """Set the number of lanes for later admissions; open streams stay."""
        self._lanes = lanes

    def utilisation(self) -> float:
        """Return the part of the lanes' time that the open streams take."""
        return (
            sum(
                count * rate_of_streams(queue.costs, queue.soft_ns, count, period) / period
                for (queue, period), count in self._groups.items()
            )
            / self._lanes
        )

    def _leave(self, group: tuple[TaskQueue, int]) -> None:
        self._groups[group] -= 1
        if not self._groups[group]:
            del self._groups[group]


def rate_of_streams(costs: RowCosts, soft_ns: int, count: int, period: int) -> float:
    """Return the average cost per chunk of some streams, in ns, at the batch that forms within the soft target.

    Args:
        costs: costs of their key.
        soft_ns: soft target in nanoseconds.
        count: number of streams.
        period: nanoseconds between two chunks of a stream.
    """
    rates = []
    for bucket in costs.buckets:
        gathered = max(1.0, min(count, count * (soft_ns - bucket.plan) / period))
        rates.append(bucket.average / min(bucket.rows, gathered))
    return min(rates) * costs.pace


def ends_late(
    task: Task, own_cost: int, queues: Iterable[TaskQueue], lanes: int, left: float, busy_until: Iterable[int], now: int
) -> bool:
    """Return whether a task would miss its hard deadline behind the queued work of the same or a higher class.

    Work counts if it runs before the task. In its own queue that is all work, if no queued task has a later soft
    target, else none. The other queues of its class get as much time as its own, so each counts with its work, but at
    most with that of the task's own queue.

    Args:
        task: a task that is not queued yet.
        own_cost: nanoseconds of a run of it alone.
        queues: the queues that are not empty.
        lanes: runs that may be in flight at once.
        left: part of the lanes' time that is left for its class; 1 for a real-time class.
        busy_until: expected ends of the runs in flight.
        now: current time.
    """
    if task.hard is None:
        return False
    at_once = float(sum(max(0, until - now) for until in busy_until))
    before, higher, equal = 0.0, 0.0, []
    for queue in queues:
        work = queue.rows * queue.costs.best_rate
        if queue.service.name != task.service.name:
            if not _goes_first(queue.service, task.service):
                continue
            if queue.service.real_time:
                at_once += work
            else:
                higher += work
        elif queue.key != task.key:
            equal.append(work)
        elif task.soft >= queue.newest_soft:
            before = work
    overtaking = OVERTAKEN * (higher + sum(min(work, before) for work in equal))
    return now + (at_once + (before + overtaking) / left) / lanes + own_cost > task.hard


def _goes_first(other: ServiceClass, own: ServiceClass) -> bool:
    if other.real_time != own.real_time:
        return other.real_time
    return other.priority >= own.priority
