"""The threads that run what is decided: callers that wait for an answer, and workers for what nobody waits for.

A decided run goes to a caller that waits for a part of it, else to any caller that waits, else to a worker. Workers are
started when they are first needed and sleep until they are handed a run; the timer sleeps until the next deadline.
Nothing polls. All methods but `stop` are called under the server's lock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from runtime_lite.scheduling.clock import Clock
from runtime_lite.serving.shield import Window

Work = TypeVar("Work")


class Hand(Generic[Work]):
    """A thread that can take a run, and sleeps on its bell.

    Args:
        done: whether it wants no further work; None for a worker, which serves whatever comes.

    Attributes:
        work: what it was handed; None when its bell was rung for another reason.
    """

    __slots__ = ("_bell", "done", "work")

    def __init__(self, done: Callable[[], bool] | None = None) -> None:
        """Start without work."""
        self.done = done
        self.work: Work | None = None
        self._bell = threading.Lock()
        self._bell.acquire()

    def ring(self) -> None:
        """Wake it; a second ring before it has woken is the same one."""
        if self._bell.locked():
            self._bell.release()

    def sleep(self, limit_ns: int | None = None) -> Work | None:
        """Wait for the bell, or so long, outside of the server's lock; return the work that came with it."""
        with Window():
            self.sleep_for(limit_ns)
        work, self.work = self.work, None
        return work

    def sleep_for(self, limit_ns: int | None) -> None:
        """Wait for the bell, or so long; None waits for the bell alone."""
        self._bell.acquire(timeout=-1 if limit_ns is None else min(limit_ns / 1e9, threading.TIMEOUT_MAX))


class Crew(Generic[Work]):
    """The threads of one server.

    Args:
        work: runs something and returns what to run next; None when the hand has been put to `rest` or is to go.
        tick: called by the timer when its time has come, without the lock.
        clock: the server's.
        lock: the server's.
    """

    def __init__(
        self,
        work: Callable[[Work, Hand[Work]], Work | None],
        tick: Callable[[], object],
        clock: Clock,
        lock: threading.Lock,
    ) -> None:
        """Start without a thread."""
        self._work, self._tick, self._clock, self._lock = work, tick, clock, lock
        self._callers: dict[Hand[Work], None] = {}
        self._idle: list[Hand[Work]] = []
        self._waiting: deque[Work] = deque()
        self._threads: list[threading.Thread] = []
        self._hired = 0
        self._stopped = False
        self._alarm: int | None = None
        self._timer_bell: Hand[Work] | None = None

    def leave(self, caller: Hand[Work]) -> Work | None:
        """A caller wakes for good; returns work that it was handed in the same moment."""
        self._callers.pop(caller, None)
        work, caller.work = caller.work, None
        return work

    def ready(self, timer: bool, worker: bool) -> None:
        """See that there are the threads that a request needs: a worker where no caller runs it, a timer for its times.

        Raises:
            RuntimeError: the system gives no more.
        """
        if self._stopped:
            return
        if timer and self._timer_bell is None and self._clock is time.monotonic_ns:
            self._start_timer()
        if worker and not self._hired:
            self._hire(None)

    def rest(self, hand: Hand[Work]) -> None:
        """A hand has nothing to do: a worker sleeps, a caller does while it waits."""
        if self._waiting and not (hand.done is not None and hand.done()):
            hand.work = self._waiting.popleft()
            hand.ring()
        elif hand.done is None:
            self._idle.append(hand)
            if self._stopped:
                hand.ring()
        elif not hand.done():
            self._callers[hand] = None

    def dismiss(self, caller: Hand[Work]) -> None:
        """A caller that sleeps need not wait any more; one that is awake sees it by itself."""
        if caller in self._callers:
            del self._callers[caller]
            caller.ring()

    def hand_over(self, work: Work, wished: Hand[Work] | None) -> None:
        """Give work to somebody.

        Args:
            work: what to run.
            wished: a caller that waits for it, if there is one.
        """
        if wished is None or wished not in self._callers:
            wished = next(iter(self._callers), None)
        if wished is not None:
            del self._callers[wished]
        elif self._idle:
            wished = self._idle.pop()
        else:
            try:
                self._hire(work)
            except RuntimeError:  # the system gives no more threads: there is one that has this request, see `ready`
                self._waiting.append(work)
            return
        wished.work = work
        wished.ring()

    def _hire(self, work: Work | None) -> None:
        """Start a worker, with something to run or at rest."""
        hand: Hand[Work] = Hand()
        hand.work = work
        if work is not None:
            hand.ring()
        self._start(lambda: self._serve(hand), f"runtime_lite worker {self._hired + 1}")
        self._hired += 1
        if work is None:
            self._idle.append(hand)

    def _serve(self, hand: Hand[Work]) -> None:
        while (work := hand.sleep()) is not None:
            next_work: Work | None = work
            while next_work is not None:
                next_work = self._work(next_work, hand)

    def _start(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def forget(self) -> None:
        """In a fork of the process: its threads are not here; others are started when they are needed."""
        self._callers, self._idle, self._threads, self._timer_bell = {}, [], [], None
        self._waiting.clear()
        self._hired = 0

    def ring_at(self, alarm: int | None) -> None:
        """Let the timer tick at some time, or earlier; a clock that is not the machine's has no timer."""
        if alarm is None or self._stopped:
            return
        if self._alarm is not None and self._alarm <= alarm:
            if self._timer_bell is not None:
                return
        else:
            self._alarm = alarm
        if self._clock is not time.monotonic_ns:
            return
        if self._timer_bell is None:
            try:
                self._start_timer()
            except RuntimeError:  # the system gives no more threads: see `unwatched`
                return
        assert self._timer_bell is not None
        self._timer_bell.ring()

    def unwatched(self) -> int | None:
        """Nanoseconds until an alarm that no timer watches, for want of a thread; None where there is none."""
        if self._alarm is None or self._timer_bell is not None or self._clock is not time.monotonic_ns:
            return None
        return max(self._alarm - self._clock(), 0)

    def _start_timer(self) -> None:
        bell: Hand[Work] = Hand()
        self._timer_bell = bell
        try:
            self._start(lambda: self._keep_time(bell), "runtime_lite timer")
        except RuntimeError:
            self._timer_bell = None
            raise

    def ticked(self) -> None:
        """The alarm has been seen to."""
        self._alarm = None

    def _keep_time(self, bell: Hand[Work]) -> None:
        while not self._stopped:
            with self._lock:
                alarm = self._alarm
            left = None if alarm is None else alarm - self._clock()
            if left is not None and left <= 0:
                self._tick()
            else:
                bell.sleep_for(left)

    def stop(self) -> None:
        """End all threads with what they are at."""
        with self._lock:
            self._stopped = True
            for hand in [*self._idle, *([self._timer_bell] if self._timer_bell else [])]:
                hand.ring()

    def left(self, until: float) -> list[str]:
        """Wait for all threads up to some monotonic second, and return the names of those that go on."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))
        return [each.name for each in self._threads if each.is_alive() and each is not threading.current_thread()]
