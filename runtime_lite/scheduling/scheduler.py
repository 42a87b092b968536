"""Schedules the work of one device: decides, from clock, queues and costs alone, which tasks run next.

The owner calls `submit`, `cancel`, `decide` and `finished` under one lock, with the current time. `decide` returns at
most one run; the owner calls it until it returns none, after each arrival, end of a run or closed stream, and at the
time `wake`. Its steps, in order:

    drop      what can no longer be answered by its hard deadline, even alone
    size      real-time work: the number of rows with which those that wait, and those that will come meanwhile, wait
              least in all; where efficient work waits for what is left of the device, the number that clears the queue
              at the least cost. If the head would miss its soft target, the cheapest of those with which it does not;
              if there are none, or the lanes would not keep up with what comes in runs of so few rows, of all: a batch
              never shrinks because it is late, and a backlog is cleared at the device's best rate
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

from runtime_lite.scheduling.admission import TOO_LARGE, TOO_LATE, Streams, ends_late
from runtime_lite.scheduling.choice import Chooser
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.decision import SETTLED, Decision, Plan, Policy, Run
from runtime_lite.scheduling.queues import OpenStream, TaskHeap, TaskQueue
from runtime_lite.scheduling.shares import Shares
from runtime_lite.scheduling.task import ENDED, NEW, QUEUED, RUNNING, RUSHED, WAITING, Key, ServiceClass, Task

EXPIRED = "deadline"
"""Reason of a drop: the latest start is past."""


class Scheduler:
    """Decides which tasks run next, and in which bucket.

    Args:
        costs: costs of every key that will be submitted; `finished` updates them.
        lanes: runs that may be in flight at once.
        policy: settings.
    """

    def __init__(self, costs: CostTable, lanes: int = 1, policy: Policy = SETTLED) -> None:
        """Start empty."""
        self._costs = costs
        self._lanes = lanes
        self._queues: dict[tuple[ServiceClass, Key], TaskQueue] = {}
        self._real_time: list[TaskQueue] = []
        self._filled: dict[TaskQueue, None] = {}
        self._timers = TaskHeap(WAITING, QUEUED, RUSHED)
        self._running: dict[Run, None] = {}
        self._streams = Streams(lanes)
        self._shares = Shares(lanes, policy.bucket_share)
        self._chooser = Chooser(policy, self._shares, self._filled, self._real_time, self._running, lanes)

    # What comes and goes

    def open_stream(self, number: int, key: Key, service: ServiceClass, period_ns: int) -> str | None:
        """Announce a stream that will send one chunk per period; return why it is refused, or None.

        An unannounced stream may submit chunks, too, but they are neither part of the utilisation nor expected.
        """
        return self._streams.open(number, self._queue(service, key), period_ns)

    def close_stream(self, number: int) -> None:
        """Record that a stream sends no more chunks; queued ones stay."""
        self._streams.close(number)

    def submit(self, task: Task, now: int) -> str | None:
        """Queue a new task; return why it is refused, or None. A refused task leaves no trace."""
        refusal = self.refusal(task, now)
        if refusal is not None:
            return refusal
        queue = self._queue(task.service, task.key)
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
        if queue.service.real_time:
            queue.note_arrival(task.rows, now)
        if task.state == NEW:
            self._enqueue(queue, task)
        if task.hard is not None:
            self._timers.push(task.hard - queue.costs.bucket_for(task.rows)[1], task)
        return None

    def refusal(self, task: Task, now: int) -> str | None:
        """Return why a new task would be refused now, apart from its stream's credits; or None."""
        costs = self._costs.of(task.key)
        if task.rows > costs.largest:
            return TOO_LARGE
        if task.hard is not None:
            own = costs.bucket_for(task.rows)[1]
            busy_until = [run.started + run.expected_ns for run in self._running]
            left = self._shares.left_for(task.service, now)
            if ends_late(task, own, self._filled, self._lanes, left, busy_until, now):
                return TOO_LATE
        return None

    def cancel(self, task: Task) -> bool:
        """Remove a task and return True; return False for one that runs, has ended or was refused."""
        if task.state not in (WAITING, QUEUED, RUSHED):
            return False
        self._remove(task)
        if task.hard is not None:
            self._timers.left()
        return True

    def finished(self, run: Run, now: int, failed: bool = False) -> None:
        """Record the end of a run: free its lane, queue the next tasks of its streams, and learn its cost.

        The cost of a failed run is not learnt.
        """
        del self._running[run]
        if not failed:
            self._costs.observe(run.key, run.rows, now - run.started)
        for task in run.tasks:
            task.state = ENDED
            if task.stream is not None:
                self._promote(task, task.stream)

    def resize(self, lanes: int) -> None:
        """Set the number of runs that may be in flight at once; current runs continue."""
        self._lanes = lanes
        self._streams.resize(lanes)
        self._shares.resize(lanes)
        self._chooser.resize(lanes)

    def forget(self, model: str) -> None:
        """Forget the queues of a model that has no task any more."""
        for at in [at for at in self._queues if at[1].model == model]:
            del self._queues[at]
        self._real_time[:] = [queue for queue in self._real_time if queue.key.model != model]

    # What runs

    def decide(self, now: int) -> Decision:
        """Return the next run for a free lane, and the tasks that are dropped."""
        dropped = self._drop(now)
        wake = None
        while self._filled and len(self._running) < self._lanes:
            plan, wake = self._chooser.choose(now)
            if plan is None:
                break
            run = self._start(plan, now, dropped)
            if run is not None:
                return Decision(run, dropped, None)
        timer = self._timers.first()
        if timer is not None and (wake is None or timer[0] < wake):
            wake = timer[0] + 1
        return Decision(None, dropped, wake)

    def _start(self, plan: Plan, now: int, dropped: list[tuple[Task, str]]) -> Run | None:
        """Take the tasks of a planned run and start it; None if no task would be answered in time."""
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
        if queue.service.real_time:
            self._shares.real_time_ns += cost
        else:
            self._shares.spend(queue, cost, plan.entitled, self._filled)
            least = sum(task.rows * self._costs.of(task.key).best_rate for task in tasks)
            self._shares.note_efficiency(least if queue.rows else cost, cost)
        return run

    def _fill_rows(self, plan: Plan, free: int, tasks: list[Task], now: int) -> int:
        """Fill free rows with tasks of other classes and shorter buckets; return the number of rows left."""
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
        """End the tasks whose latest start is past, and return them with the reason."""
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

    def _enqueue(self, queue: TaskQueue, task: Task) -> None:
        queue.push(task)
        self._filled[queue] = None

    def _remove(self, task: Task) -> None:
        """Remove a task that is not running."""
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
            self._enqueue(self._queue(following.service, following.key), following)

    def _queue(self, service: ServiceClass, key: Key) -> TaskQueue:
        queue = self._queues.get((service, key))
        if queue is None:
            queue = self._queues[service, key] = TaskQueue(service, key, self._costs.of(key))
            if service.real_time:
                self._real_time.append(queue)
        return queue
