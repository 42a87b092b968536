"""Admits streams by utilisation and credits, and single tasks that can still be answered in time.

streams       the time that their chunks take of the lanes, at the batch that their number lets form, stays at or below
              `MAX_UTILISATION`
chunks        one in flight per stream; further ones wait in order, as many as the stream has credits
single tasks  refused if the work queued before them and their own run already pass the hard deadline; work that goes
              first counts `OVERTAKEN` times, as more of it comes meanwhile
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime_lite.scheduling.cost_table import RowCosts
from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.task import BULK, UTTERANCE, WAITING, ServiceClass, Task

MAX_UTILISATION = 1.0 - UTTERANCE.share - BULK.share
"""Part of the lanes' time that streams may take on the average: what the guaranteed shares of other work leave."""

CREDITS = 8
"""Chunks of one stream that may be here at once, the one in flight included."""

OVERTAKEN = 2.5
"""How much goes before a task of what is queued beside its own queue now, as that is filled up while it waits."""

FULL = "utilisation"
NO_CREDIT = "credits"
TOO_LATE = "cannot be answered in time"
TOO_LARGE = "more rows than the largest bucket"


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


class Streams:
    """The streams of one device.

    Args:
        lanes: runs that may be in flight at once.
    """

    def __init__(self, lanes: int) -> None:
        """Start without streams."""
        self._lanes = lanes
        self._open: dict[int, OpenStream] = {}
        self._groups: dict[tuple[TaskQueue, int], int] = {}

    def open(self, number: int, queue: TaskQueue, period: int) -> str | None:
        """Enter a stream that sends a chunk per period; return why it is refused, or None."""
        group = (queue, period)
        self._groups[group] = self._groups.get(group, 0) + 1
        if self.utilisation() > MAX_UTILISATION:
            self._leave(group)
            return FULL
        self._open[number] = OpenStream(queue, period)
        queue.streams += 1
        return None

    def close(self, number: int) -> None:
        """Note that a stream sends nothing more; what it has queued stays. A stream unknown or closed is left alone."""
        stream = self._open.get(number)
        if stream is None or stream.closed:
            return
        stream.closed = True
        if stream.queue is not None and stream.period is not None:
            stream.queue.streams -= 1
            self._leave((stream.queue, stream.period))
        if stream.current is None:
            del self._open[number]

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

    def resize(self, lanes: int) -> None:
        """Judge by another number of lanes from now on; streams that are open stay."""
        self._lanes = lanes

    def utilisation(self) -> float:
        """Return the part of the lanes' time that the streams take."""
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
    """Return the average cost per chunk of some streams, in ns, at the batch that arrives within the soft target.

    Args:
        costs: of their key.
        soft_ns: soft target.
        count: streams.
        period: nanoseconds from chunk to chunk.
    """
    rates = []
    for bucket in costs.buckets:
        gathered = max(1.0, min(count, count * (soft_ns - bucket.plan) / period))
        rates.append(bucket.average / min(bucket.rows, gathered))
    return min(rates) * costs.pace


def ends_late(
    task: Task, own_cost: int, queues: Iterable[TaskQueue], lanes: int, left: float, busy_until: Iterable[int], now: int
) -> bool:
    """Whether the work of the same or a higher class that is queued, and its own run, pass a task's hard deadline.

    Of its own queue what has an earlier soft target counts, judged by the latest queued. The other queues of its class
    get as much time as its own until it runs, so of each as much counts as of its own, or all of it if that is less.

    Args:
        task: not queued yet.
        own_cost: cost of its run alone.
        queues: those that are not empty.
        lanes: runs that may be in flight at once.
        left: part of the lanes' time that is left for its class; 1 if that is real-time.
        busy_until: expected ends of the runs in flight.
        now: the time.
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
