"""Executes the runs that the scheduler decides on threads: those of callers that wait for an answer, and workers.

A decided run goes to a caller that waits for a part of it, else to any waiting caller, else to a worker. Workers are
started when they are first needed and sleep until they get a run; the timer thread sleeps until the next deadline. No
thread polls. All methods but `stop` are called under the server's lock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from runtime_lite.scheduling.clock import Clock
from runtime_lite.serving.shield import Window

Work = TypeVar("Work")


class Worker(Generic[Work]):
    """A thread that can execute a run and sleeps until it is woken: one of the pool, or a waiting caller.

    Args:
        done: returns whether a caller wants no further work; None for a thread of the pool, which takes any work.

    Attributes:
        work: the work to do after waking; None if the thread is woken for another reason.
    """

    __slots__ = ("_wake_up", "done", "work")

    def __init__(self, done: Callable[[], bool] | None = None) -> None:
        """Start without work."""
        self.done = done
        self.work: Work | None = None
        self._wake_up = threading.Lock()
        self._wake_up.acquire()

    def wake(self) -> None:
        """Wake the thread; a second call before it has woken does nothing."""
        if self._wake_up.locked():
            self._wake_up.release()

    def sleep(self, limit_ns: int | None = None) -> Work | None:
        """Sleep until woken, at most `limit_ns`, without the server's lock; return the work to do, if any."""
        with Window():
            self.sleep_for(limit_ns)
        work, self.work = self.work, None
        return work

    def sleep_for(self, limit_ns: int | None) -> None:
        """Sleep until woken, at most `limit_ns` nanoseconds; None for no limit."""
        self._wake_up.acquire(timeout=-1 if limit_ns is None else min(limit_ns / 1e9, threading.TIMEOUT_MAX))


class WorkerPool(Generic[Work]):
    """The threads of one server.

    Args:
        work: executes work and returns the next work; None if the worker has been put to `rest` or is to end.
        tick: called by the timer thread at the time of the alarm, without the lock.
        clock: the server's.
        lock: the server's.
    """

    def __init__(
        self,
        work: Callable[[Work, Worker[Work]], Work | None],
        tick: Callable[[], object],
        clock: Clock,
        lock: threading.Lock,
    ) -> None:
        """Start without threads."""
        self._work, self._tick, self._clock, self._lock = work, tick, clock, lock
        self._callers: dict[Worker[Work], None] = {}
        self._idle: list[Worker[Work]] = []
        self._waiting: deque[Work] = deque()
        self._threads: list[threading.Thread] = []
        self._started = 0
        self._stopped = False
        self._alarm: int | None = None
        self._timer: Worker[Work] | None = None

    def leave(self, caller: Worker[Work]) -> Work | None:
        """Remove a caller that no longer waits; return work that it got at the same moment, if any."""
        self._callers.pop(caller, None)
        work, caller.work = caller.work, None
        return work

    def ready(self, timer: bool, worker: bool) -> None:
        """Start the threads that a request needs: a worker if no caller executes it, a timer for its deadlines.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        if self._stopped:
            return
        if timer and self._timer is None and self._clock is time.monotonic_ns:
            self._start_timer()
        if worker and not self._started:
            self._start_worker(None)

    def rest(self, worker: Worker[Work]) -> None:
        """Let a worker without work sleep; a caller is listed among the waiting ones."""
        if self._waiting and not (worker.done is not None and worker.done()):
            worker.work = self._waiting.popleft()
            worker.wake()
        elif worker.done is None:
            self._idle.append(worker)
            if self._stopped:
                worker.wake()
        elif not worker.done():
            self._callers[worker] = None

    def dismiss(self, caller: Worker[Work]) -> None:
        """Wake a sleeping caller, as it need not wait any more."""
        if caller in self._callers:
            del self._callers[caller]
            caller.wake()

    def hand_over(self, work: Work, wished: Worker[Work] | None) -> None:
        """Give work to a waiting caller or to a worker.

        Args:
            work: the work to do.
            wished: a caller that waits for this work, if there is one.
        """
        if wished is None or wished not in self._callers:
            wished = next(iter(self._callers), None)
        if wished is not None:
            del self._callers[wished]
        elif self._idle:
            wished = self._idle.pop()
        else:
            try:
                self._start_worker(work)
            except RuntimeError:  # the system gives no more threads: there is one that has this request, see `ready`
                self._waiting.append(work)
            return
        wished.work = work
        wished.wake()

    def _start_worker(self, work: Work | None) -> None:
        """Start a worker with some work, or one that sleeps."""
        worker: Worker[Work] = Worker()
        worker.work = work
        if work is not None:
            worker.wake()
        self._start(lambda: self._serve(worker), f"runtime_lite worker {self._started + 1}")
        self._started += 1
        if work is None:
            self._idle.append(worker)

    def _serve(self, worker: Worker[Work]) -> None:
        while (work := worker.sleep()) is not None:
            next_work: Work | None = work
            while next_work is not None:
                next_work = self._work(next_work, worker)

    def _start(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def forget(self) -> None:
        """In a forked child: drop the threads of the parent; new ones are started when they are needed."""
        self._callers, self._idle, self._threads, self._timer = {}, [], [], None
        self._waiting.clear()
        self._started = 0

    def wake_at(self, alarm: int | None) -> None:
        """Let the timer call `tick` at a time, or earlier. There is no timer for a clock other than the machine's."""
        if alarm is None or self._stopped:
            return
        if self._alarm is not None and self._alarm <= alarm:
            if self._timer is not None:
                return
        else:
            self._alarm = alarm
        if self._clock is not time.monotonic_ns:
            return
        if self._timer is None:
            try:
                self._start_timer()
            except RuntimeError:  # the system gives no more threads: see `unwatched`
                return
        assert self._timer is not None
        self._timer.wake()

    def unwatched(self) -> int | None:
        """Return the nanoseconds until an alarm for which no timer thread could be started; None without one."""
        if self._alarm is None or self._timer is not None or self._clock is not time.monotonic_ns:
            return None
        return max(self._alarm - self._clock(), 0)

    def _start_timer(self) -> None:
        timer: Worker[Work] = Worker()
        self._timer = timer
        try:
            self._start(lambda: self._keep_time(timer), "runtime_lite timer")
        except RuntimeError:
            self._timer = None
            raise

    def ticked(self) -> None:
        """Record that the alarm was handled."""
        self._alarm = None

    def _keep_time(self, timer: Worker[Work]) -> None:
        while not self._stopped:
            with self._lock:
                alarm = self._alarm
            left = None if alarm is None else alarm - self._clock()
            if left is not None and left <= 0:
                self._tick()
            else:
                timer.sleep_for(left)

    def stop(self) -> None:
        """End all threads once they have finished their work."""
        with self._lock:
            self._stopped = True
            for worker in [*self._idle, *([self._timer] if self._timer else [])]:
                worker.wake()

    def left(self, until: float) -> list[str]:
        """Wait for all threads until a time in monotonic seconds; return the names of those that still run."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))
        return [each.name for each in self._threads if each.is_alive() and each is not threading.current_thread()]
