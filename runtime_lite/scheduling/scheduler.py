"""The scheduler of one device: a pure function of clock, queues and costs, for all kinds of traffic.

The owner calls `submit`, `cancel`, `decide` and `finished` under one lock, with the time. `decide` returns at most one
run; it is called again until it returns none, whenever a task came, a run ended, a stream was closed, or the time
`wake` has come. In the order of its steps:

    drop      what can no longer be answered by its hard deadline, even alone
    size      real-time work: the row bucket that clears the queue at the least cost, of those with which the head meets
              its soft target; if none does, of all: a batch never shrinks because it is late
    ripe      real-time work whose batch gains nothing more by waiting, or must start now, runs: earliest start first
    fill      else efficient work runs in the slack that is left until real-time work must start
    wait      else real-time work runs, or waits for the next chunk that will come, but never past its latest start
    ageing    a class gets its share of a second, and a bucket its part of its class, before all of these

Example:
    scheduler = Scheduler(costs, lanes=1)
    scheduler.submit(task_at(key, CHUNK, now, stream=7), now)
    decision = scheduler.decide(now)                # decision.run: what to execute
    scheduler.finished(decision.run, later)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import NamedTuple

from runtime_lite.scheduling.admission import TOO_LARGE, TOO_LATE, OpenStream, Streams, ends_late
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.queues import TaskHeap, TaskQueue
from runtime_lite.scheduling.shares import Shares
from runtime_lite.scheduling.task import (
    ENDED,
    NEW,
    QUEUED,
    RUNNING,
    RUSHED,
    WAITING,
    Key,
    ServiceClass,
    Task,
)

EXPIRED = "deadline"
"""Reason of a drop: the latest start has passed."""

AGED_NS = 500 * NS_PER_MS
"""An entitled task that has waited so long no longer waits for slack."""

FOR_EVER = 1 << 62


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


class _Plan(NamedTuple):
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


class Scheduler:
    """Decides what runs next.

    Args:
        costs: of every key that will be submitted; corrected by `finished`.
        lanes: runs that may be in flight at once.
        policy: see there.
    """

    def __init__(self, costs: CostTable, lanes: int = 1, policy: Policy = SETTLED) -> None:
        """Start empty."""
        self._costs = costs
        self._lanes = lanes
        self._policy = policy
        self._guard = int(policy.guard_ms * NS_PER_MS)
        self._floor = int(policy.floor_ms * NS_PER_MS)
        self._queues: dict[tuple[ServiceClass, Key], TaskQueue] = {}
        self._real_time: list[TaskQueue] = []
        self._filled: dict[TaskQueue, None] = {}
        self._timers = TaskHeap(WAITING, QUEUED, RUSHED)
        self._running: dict[Run, None] = {}
        self._streams = Streams(lanes)
        self._shares = Shares(lanes, policy.bucket_share)

    # What comes and goes

    def open_stream(self, number: int, key: Key, service: ServiceClass, period_ns: int) -> str | None:
        """Announce a stream that will send one chunk per period; return why it is refused, or None.

        A stream that nobody announces may submit all the same; it is then neither counted nor expected.
        """
        return self._streams.open(number, self._queue(service, key), period_ns)

    def close_stream(self, number: int) -> None:
        """Note that a stream sends nothing more; what it has queued stays."""
        self._streams.close(number)

    def submit(self, task: Task, now: int) -> str | None:
        """Queue a new task; return why it is refused, or None. A refused task was never here."""
        queue = self._queue(task.service, task.key)
        if task.rows > queue.costs.largest:
            return TOO_LARGE
        own = 0
        if task.hard is not None:
            own = queue.costs.bucket_for(task.rows)[1]
            busy_until = [run.started + run.expected_ns for run in self._running]
            lanes = self._shares.lanes_for(task.service, now)
            if ends_late(task, own, self._filled, lanes, busy_until, now):
                return TOO_LATE
        if task.stream is not None:
            stream = self._streams.enter(task, task.stream)
            if not isinstance(stream, OpenStream):
                return stream
            if stream.period is not None:
                queue.expect(now + stream.period)
            else:
                queue.last_unannounced = now
        else:
            queue.last_unannounced = now
        if task.state == NEW:
            self._enqueue(task)
        if task.hard is not None:
            self._timers.push(task.hard - own, task)
        return None

    def cancel(self, task: Task) -> bool:
        """Take a task out and return True; one that runs, has ended or was refused is left alone."""
        if task.state not in (WAITING, QUEUED, RUSHED):
            return False
        self._remove(task)
        if task.hard is not None:
            self._timers.left()
        return True

    def finished(self, run: Run, now: int, failed: bool = False) -> None:
        """Note the end of a run: its lane is free, its streams may go on, and its cost is learnt unless it failed."""
        del self._running[run]
        if not failed:
            self._costs.observe(run.key, run.rows, now - run.started)
        for task in run.tasks:
            task.state = ENDED
            if task.stream is not None:
                self._promote(task, task.stream)

    def resize(self, lanes: int) -> None:
        """Let more or fewer runs be in flight at once; what runs goes on."""
        self._lanes = lanes
        self._streams.resize(lanes)
        self._shares.resize(lanes)

    def forget(self, model: str) -> None:
        """Forget the queues of a model of which nothing is here any more."""
        for at in [at for at in self._queues if at[1].model == model]:
            del self._queues[at]
        self._real_time = [queue for queue in self._real_time if queue.key.model != model]

    # What runs

    def decide(self, now: int) -> Decision:
        """Return the next run for a free lane, and what is dropped."""
        dropped = self._drop(now)
        wake = None
        while self._filled and len(self._running) < self._lanes:
            plan, wake = self._choose(now)
            if plan is None:
                break
            run = self._start(plan, now, dropped)
            if run is not None:
                return Decision(run, dropped, None)
        timer = self._timers.first()
        if timer is not None and (wake is None or timer[0] < wake):
            wake = timer[0] + 1
        return Decision(None, dropped, wake)

    def _choose(self, now: int) -> tuple[_Plan | None, int | None]:
        """Return what should start now; or None and when to look again."""
        urgent = [self._urgent(queue, now) for queue in self._filled if queue.service.real_time]
        if len(urgent) > 1:
            urgent.sort(key=lambda plan: _order(plan, now))
        if len(urgent) == len(self._filled):
            return self._first(urgent, now)
        if len(self._filled) == 1 and not self._real_time:  # nobody else to think of
            found = self._useful(next(iter(self._filled)), FOR_EVER, now)
            return (None if found is None else found[1]), None
        plan, wake = self._fill(urgent, now)
        ripe = next((other for other in urgent if other.ripe), None)
        if plan is not None and (ripe is None or plan.entitled):
            return plan, None
        return self._first(urgent, now) if urgent else (None, wake)

    def _urgent(self, queue: TaskQueue, now: int) -> _Plan:
        """Return the run of a real-time queue: the best bucket with which its head meets its target, else the best."""
        head, rows = self._head(queue)
        size, cost = queue.costs.best_bucket(head.rows, rows)
        limit = head.soft
        if head.state == RUSHED:
            size, cost, limit = self._rushed(queue, head, rows, FOR_EVER, now)
        elif now + cost > limit:
            size, cost = queue.costs.best_bucket_within(limit - now, head.rows, rows) or (size, cost)
        latest = limit - cost
        ripe = latest - self._guard <= now or cost <= self._policy.ripe * queue.costs.best_rate * min(rows, size)
        return _Plan(queue, size, cost, latest, ripe)

    def _useful(self, queue: TaskQueue, room: int, now: int) -> tuple[float, _Plan] | None:
        """Return the best run of an efficient queue within some room, and what it is worth per nanosecond."""
        head, rows = self._head(queue)
        size, cost = queue.costs.best_bucket(head.rows, rows)
        if head.state == RUSHED:
            size, cost, _ = self._rushed(queue, head, rows, room, now)
        if cost > room:
            found = queue.costs.best_bucket_within(room, head.rows, rows)
            if found is None:
                return None
            size, cost = found
        worth = queue.worth / queue.rows * min(rows, size) / max(cost, 1)
        return worth, _Plan(queue, size, cost, head.soft - cost, True)

    @staticmethod
    def _rushed(queue: TaskQueue, head: Task, rows: int, room: int, now: int) -> tuple[int, int, int]:
        """Return row bucket, cost and limit of a run that answers a rushed head before its hard deadline."""
        assert head.hard is not None
        found = queue.costs.best_bucket_within(min(room, head.hard - now), head.rows, rows)
        size, cost = found or queue.costs.bucket_for(head.rows)
        return size, cost, head.hard

    def _head(self, queue: TaskQueue) -> tuple[Task, int]:
        """Return the head of a queue that is not empty, and how many rows may join it, its own included."""
        first = queue.due.first()
        if first is None:
            first = queue.rushed.first()
            assert first is not None
            rows = queue.rows
        else:
            rows = queue.due_rows if len(self._filled) == 1 else self._rows_of_key(queue.key)
        head = first[2]
        return head, head.rows if queue.key.alone else rows

    def _rows_of_key(self, key: Key) -> int:
        return sum(queue.due_rows for queue in self._filled if queue.key is key or queue.key == key)

    def _first(self, urgent: list[_Plan], now: int) -> tuple[_Plan | None, int | None]:
        """Return the real-time run to start: the first that gains nothing by waiting, if the others can wait for it.

        Or None and until when, if all of them wait on purpose.
        """
        until = limit = FOR_EVER
        for plan in urgent:
            if plan.ripe:
                return (plan if now + plan.cost <= limit else urgent[0]), None
            limit = min(limit, plan.latest)
            expected = plan.queue.next_expected(now) if self._policy.wait else None
            if expected is not None and expected < plan.latest - self._guard:
                until = min(until, expected)
            elif until == FOR_EVER:
                until = now
        return (None, until) if until > now else (urgent[0], None)

    def _fill(self, urgent: list[_Plan], now: int) -> tuple[_Plan | None, int | None]:
        """Return the most useful efficient run that fits, or None and when one may."""
        slack, wake = self._slack(urgent, now)
        room = max(slack - self._guard, self._floor) if self._policy.floor_always else slack - self._guard
        best: tuple[tuple[bool, int, bool, float], _Plan] | None = None
        for queue in self._filled:
            if queue.service.real_time:
                continue
            found = self._useful(queue, room, now)
            claim = self._claim(queue, slack, now)
            if isinstance(claim, int):
                wake = claim if wake is None else min(wake, claim)
            elif claim is not None:
                found = found or claim
            if found is not None:
                worth, plan = found
                claimed = not isinstance(claim, int | None)
                rank = (claimed, queue.service.priority, queue.owed >= plan.cost, worth)
                if best is None or rank > best[0]:
                    best = rank, plan._replace(entitled=claimed)
        return (None, wake) if best is None else (best[1], None)

    def _claim(self, queue: TaskQueue, slack: int, now: int) -> "tuple[float, _Plan] | int | None":
        """Return the run that the class of an efficient queue may claim now, or when it may, or None for never."""
        found = self._useful(queue, max(self._floor, queue.costs.buckets[0].plan), now)
        if found is None:
            return None
        cost = found[1].cost
        entitled_at = self._shares.entitled_at(queue.service, cost, now)
        if entitled_at is None or entitled_at > now:
            return entitled_at
        head, _ = self._head(queue)
        aged_at = head.arrival + AGED_NS
        return found if cost <= slack or aged_at <= now else aged_at

    def _slack(self, urgent: list[_Plan], now: int) -> tuple[int, int | None]:
        """Return how long a run may take on a lane so that real-time work still starts in time, and when that changes.

        Real-time work is what is queued, at the cost of the batch that it will have grown to, and what may come.
        """
        work = []
        for plan in urgent:
            cost = max(plan.cost, plan.queue.last_cost)
            work.append((plan.latest + plan.cost - cost, cost))
        change = None
        for queue in self._real_time if self._policy.cap else ():
            if queue in self._filled:
                continue
            comes, until = queue.may_come(now)
            if comes is not None:
                work.append((comes + queue.soft_ns - queue.last_cost, queue.last_cost))
                change = until if change is None else min(change, until)
        work.sort()
        others = self._other_lanes(now)
        slack, own = FOR_EVER, 0
        for latest, cost in work:
            if others and others[0] <= latest:
                heapreplace(others, others[0] + cost)
            else:
                slack = min(slack, latest - own - now)
                own += cost
        return slack, change

    def _other_lanes(self, now: int) -> list[int]:
        """Return, ascending, when every lane but one free one can take a run."""
        busy = [max(now, run.started + run.expected_ns) for run in self._running]
        return [now] * (self._lanes - len(busy) - 1) + sorted(busy)

    def _start(self, plan: _Plan, now: int, dropped: list[tuple[Task, str]]) -> Run | None:
        """Take the tasks of a run; None if no task would be answered in time, and the plan has to be made again."""
        queue, free, tasks = plan.queue, plan.rows, []
        heap = queue.due if queue.due.live else queue.rushed
        while free and (first := heap.first()) is not None:
            task = first[2]
            if task.hard is not None and now + plan.cost > task.hard:
                if heap is queue.due:
                    queue.rush()
                elif now + queue.costs.bucket_for(task.rows)[1] > task.hard:
                    self._end(task, dropped)
                else:
                    break
                continue
            if task.rows > free:
                break
            tasks.append(self._take(queue, heap))
            free -= task.rows
            if queue.key.alone:
                break
        if not tasks:
            return None
        if free and len(self._filled) > 1:
            free = self._fill_rows(plan, free, tasks, now)
        rows, cost = queue.costs.bucket_for(plan.rows - free)
        run = Run(queue.key, rows, tasks, now, cost)
        queue.last_cost = cost
        self._running[run] = None
        self._shares.spend(queue, cost, plan.entitled, self._filled)
        if not queue.service.real_time:
            least = sum(task.rows * self._costs.of(task.key).best_rate for task in tasks)
            self._shares.note_efficiency(least, cost)
        return run

    def _fill_rows(self, plan: _Plan, free: int, tasks: list[Task], now: int) -> int:
        """Fill free rows with tasks of other classes and of shorter buckets; return how many rows are left."""
        key = plan.queue.key
        for queue in [other for other in self._filled if other is not plan.queue and key.holds(other.key)]:
            while free and (first := queue.due.first()) is not None:
                task = first[2]
                if task.rows > free or (task.hard is not None and now + plan.cost > task.hard):
                    break
                tasks.append(self._take(queue, queue.due))
                free -= task.rows
        return free

    def _take(self, queue: TaskQueue, heap: TaskHeap) -> Task:
        task = queue.take(heap, RUNNING)
        if task.hard is not None:
            self._timers.left()
        if not queue.rows:
            del self._filled[queue]
        return task

    # Where tasks are

    def _drop(self, now: int) -> list[tuple[Task, str]]:
        """End the tasks whose latest start has passed."""
        dropped: list[tuple[Task, str]] = []
        timers = self._timers
        while timers.live and (first := timers.first()) is not None and first[0] < now:
            task = first[2]
            assert task.hard is not None
            latest = task.hard - self._costs.of(task.key).bucket_for(task.rows)[1]
            if latest >= now:  # the cost has fallen since
                timers.pop()
                timers.push(latest, task)
            else:
                self._end(task, dropped)
        return dropped

    def _end(self, task: Task, dropped: list[tuple[Task, str]]) -> None:
        self._remove(task)
        self._timers.left()
        dropped.append((task, EXPIRED))

    def _enqueue(self, task: Task) -> None:
        queue = self._queue(task.service, task.key)
        queue.push(task)
        self._filled[queue] = None

    def _remove(self, task: Task) -> None:
        """Take a task out that is not running."""
        if task.state == WAITING:
            task.state = ENDED
        else:
            queue = self._queue(task.service, task.key)
            queue.remove(task, ENDED)
            if not queue.rows:
                del self._filled[queue]
        if task.stream is not None:
            self._promote(task, task.stream)

    def _promote(self, task: Task, stream: int) -> None:
        """Queue the next task of a stream, if one waits behind a task that has ended."""
        following = self._streams.leave(task, stream)
        if following is not None:
            self._enqueue(following)

    def _queue(self, service: ServiceClass, key: Key) -> TaskQueue:
        queue = self._queues.get((service, key))
        if queue is None:
            queue = self._queues[service, key] = TaskQueue(service, key, self._costs.of(key))
            if service.real_time:
                self._real_time.append(queue)
        return queue


def _order(plan: _Plan, now: int) -> tuple[bool, int, int]:
    """Late runs come first, by priority, then by latest start."""
    in_time = plan.latest >= now
    return in_time, 0 if in_time else -plan.queue.service.priority, plan.latest
