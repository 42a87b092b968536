"""Chooses the next run: real-time work by its latest start, other work in the time that this leaves.

`scheduler.py` describes the steps. Nothing is changed here; the scheduler may give up a chosen run when it takes the
tasks.
"""

from heapq import heapreplace

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.decision import Plan, Policy, Run
from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.shares import Shares
from runtime_lite.scheduling.task import RUSHED, Key, Task

AGED_NS = 500 * NS_PER_MS
"""Waiting time in nanoseconds after which an entitled task no longer waits for real-time work."""

LEAST_FREE = 0.03
"""Part of the lanes' time that is assumed to be free at least; under overload requests wait anyway."""

FOR_EVER = 1 << 62


class Chooser:
    """Chooses among the queues of one device; it reads the containers of its scheduler and does not change them.

    Args:
        policy: settings.
        shares: the accounts of the classes.
        filled: the queues that are not empty.
        real_time: all real-time queues.
        running: runs in flight.
        lanes: runs that may be in flight at once.
    """

    def __init__(
        self,
        policy: Policy,
        shares: Shares,
        filled: dict[TaskQueue, None],
        real_time: list[TaskQueue],
        running: dict[Run, None],
        lanes: int,
    ) -> None:
        """Store the containers, which are empty at first."""
        self._policy = policy
        self._shares = shares
        self._filled = filled
        self._real_time = real_time
        self._running = running
        self._lanes = lanes
        self._guard = int(policy.guard_ms * NS_PER_MS)
        self._floor = int(policy.floor_ms * NS_PER_MS)

    def resize(self, lanes: int) -> None:
        """Set the number of lanes for later choices."""
        self._lanes = lanes

    def choose(self, now: int) -> tuple[Plan | None, int | None]:
        """Return the run to start now; or None and the time at which to choose again."""
        urgent = [self._urgent(queue, now) for queue in self._filled if queue.service.real_time]
        if len(urgent) > 1:
            urgent.sort(key=lambda plan: _order(plan, now))
        if len(urgent) == len(self._filled):
            return self._first(urgent, now)
        if len(self._filled) == 1 and not self._real_time:  # nobody else to think of
            useful = self._useful(next(iter(self._filled)), FOR_EVER, now)
            return (None if useful is None else useful[1]), None
        plan, wake = self._fill(urgent, now)
        ripe = next((other for other in urgent if other.ripe), None)
        if plan is not None and (ripe is None or plan.entitled):
            return plan, None
        return self._first(urgent, now) if urgent else (None, wake)

    def _urgent(self, queue: TaskQueue, now: int) -> Plan:
        """Return the run of a real-time queue: the best bucket in time for its first task, else the best bucket."""
        head, rows = self._head(queue)
        size, cost = self._soonest(queue, head.rows, rows, now)
        limit = head.soft
        if head.state == RUSHED:
            size, cost, limit = self._rushed(queue, head, rows, FOR_EVER, now)
        elif now + cost > limit and not queue.service.patient:
            within = queue.costs.best_bucket_within(limit - now, head.rows, rows)
            if within is None or not self._keeps_up(queue, *within, now):
                within = queue.costs.best_bucket(head.rows, rows)
            size, cost = within
        latest = limit - cost
        ripe = latest - self._guard <= now or cost <= self._policy.ripe * queue.costs.best_rate * min(rows, size)
        return Plan(queue, size, cost, latest, ripe)

    def _soonest(self, queue: TaskQueue, least: int, rows: int, now: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, of a real-time run none of whose rows is late."""
        if queue.service.patient:
            return queue.costs.widest_bucket(least, rows)
        if rows == least or not all(other.service.real_time for other in self._filled):
            return queue.costs.best_bucket(least, rows)
        free = max(1.0 - self._load(now) / self._lanes, LEAST_FREE)
        return queue.costs.soonest_bucket(least, rows, queue.rows_per_ns(now) / free, self._lanes)

    def _load(self, now: int) -> float:
        """Return the number of lanes that arriving real-time work needs, in the runs that are cheapest per row.

        Patient work follows from its answers, so that it comes as fast as a device allows: it counts for nothing.
        """
        arriving = [queue for queue in self._real_time if not queue.service.patient]
        return sum(queue.rows_per_ns(now) * queue.costs.best_rate for queue in arriving)

    def _keeps_up(self, queue: TaskQueue, size: int, cost: int, now: int) -> bool:
        """Return whether the lanes could do all arriving real-time work if all runs of a queue were of this size.

        Otherwise small runs, each for a first task that is nearly late, would delay the tasks behind it until these are
        nearly late, too, so that a backlog would never shrink.
        """
        more = queue.rows_per_ns(now) * (cost / size - queue.costs.best_rate)
        return self._load(now) + more < self._lanes

    def _useful(self, queue: TaskQueue, room: int, now: int) -> tuple[float, Plan] | None:
        """Return the best run of an efficient queue within `room` nanoseconds, and its worth per nanosecond."""
        head, rows = self._head(queue)
        size, cost = queue.costs.best_bucket(head.rows, rows)
        if head.state == RUSHED:
            size, cost, _ = self._rushed(queue, head, rows, room, now)
        if cost > room:
            within = queue.costs.best_bucket_within(room, head.rows, rows)
            if within is None:
                return None
            size, cost = within
        worth = queue.worth / queue.rows * min(rows, size) / max(cost, 1)
        return worth, Plan(queue, size, cost, head.soft - cost, True)

    @staticmethod
    def _rushed(queue: TaskQueue, head: Task, rows: int, room: int, now: int) -> tuple[int, int, int]:
        """Return row bucket, cost and limit of a run that answers a rushed task before its hard deadline."""
        assert head.hard is not None
        found = queue.costs.best_bucket_within(min(room, head.hard - now), head.rows, rows)
        size, cost = found or queue.costs.bucket_for(head.rows)
        return size, cost, head.hard

    def _head(self, queue: TaskQueue) -> tuple[Task, int]:
        """Return the first task of a non-empty queue, and the number of rows that may run with it, its own included."""
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

    def _first(self, urgent: list[Plan], now: int) -> tuple[Plan | None, int | None]:
        """Return the real-time run to start: the first ripe one, if the others can wait for it.

        If all of them wait on purpose, return None and the time until which they wait.

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

    def _fill(self, urgent: list[Plan], now: int) -> tuple[Plan | None, int | None]:
        """Return the most useful efficient run that fits, or None and the time at which one may fit."""
        slack, wake = self._slack(urgent, now)
        room = max(slack - self._guard, self._floor) if self._policy.floor_always else slack - self._guard
        best: tuple[tuple[bool, int, bool, float], Plan] | None = None
        for queue in self._filled:
            if queue.service.real_time:
                continue
            candidate = self._useful(queue, room, now)
            claim = self._claim(queue, slack, now)
            if isinstance(claim, int):
                wake = claim if wake is None else min(wake, claim)
            elif claim is not None:
                candidate = candidate or claim
            if candidate is not None:
                worth, plan = candidate
                claimed = not isinstance(claim, int | None)
                rank = (claimed, queue.service.priority, queue.owed >= plan.cost, worth)
                if best is None or rank > best[0]:
                    best = rank, plan._replace(entitled=claimed)
        return (None, wake) if best is None else (best[1], None)

    def _claim(self, queue: TaskQueue, slack: int, now: int) -> "tuple[float, Plan] | int | None":
        """Return the run that the class of an efficient queue may claim now, or the time of its claim, or None."""
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

    def _slack(self, urgent: list[Plan], now: int) -> tuple[int, int | None]:
        """Return the longest run on a lane that does not delay real-time work, and the time at which this changes.

        Real-time work is the queued work, at the cost of the batch that it will be by then, and the work that may come.
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
        slack, queued_ns = FOR_EVER, 0
        for latest, cost in work:
            if others and others[0] <= latest:
                heapreplace(others, others[0] + cost)
            else:
                slack = min(slack, latest - queued_ns - now)
                queued_ns += cost
        return slack, change

    def _other_lanes(self, now: int) -> list[int]:
        """Return the times, ascending, at which the lanes other than one free lane can take a run."""
        busy = [max(now, run.started + run.expected_ns) for run in self._running]
        return [now] * (self._lanes - len(busy) - 1) + sorted(busy)


def _order(plan: Plan, now: int) -> tuple[bool, int, int]:
    """Return a sort key: late runs first, by priority, then all by their latest start."""
    in_time = plan.latest >= now
    return in_time, 0 if in_time else -plan.queue.service.priority, plan.latest
