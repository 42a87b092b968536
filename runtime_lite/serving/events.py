"""Defines the events of the server that metrics, traces and views receive, and the protocol of their observers.

All times are those of the server's clock, monotonic integer nanoseconds. Records are made only if there are observers.
Observers are called by the threads that run requests, outside of the server's lock, one event at a time; they must be
quick and thread-safe and raise nothing. An observer that raises is removed, and the server goes on.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from runtime_lite.executors.memory import Crossed

Outcome = Literal["done", "dropped", "cancelled", "failed"]
"""How a request ends, exactly once."""

StreamChange = Literal["opened", "paused", "resumed", "closed", "expired", "restored", "slow"]
"""A change of a stream; `expired` ends it because it was idle, `slow` because its responses were not read."""

ModelChange = Literal["loaded", "swapped", "unloaded"]


@dataclass(frozen=True, slots=True)
class Request:
    """One admitted or refused request, as it was submitted.

    Attributes:
        number: counted per runtime, from 1.
        model: name of the model, with a number appended while another version or model of that name is open.
        graph: graph name.
        service: name of its service class.
        rows: rows of its feed.
        stream: number of its stream, or None.
        sequence: number of its first chunk in the stream, from 0; or None.
        arrival: when it was submitted.
        soft: time by which a good answer should be out.
        hard: time from which its answer is worthless; None for never.
        worth: number of its frames: its rows, times their true lengths if rows have lengths.
    """

    number: int
    model: str
    graph: str
    service: str
    rows: int
    stream: int | None
    sequence: int | None
    arrival: int
    soft: int
    hard: int | None
    worth: float


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of one graph on one lane; observers get it when the run has ended.

    Attributes:
        number: counted per runtime, from 1.
        lane: number of the lane, from 0.
        model: name of the model.
        graph: graph name.
        sizes: bucket of every axis.
        rows: rows in use, at most the batch axis of `sizes`.
        used: entries of the inputs of role data that hold callers' values.
        places: entries of the inputs of role data, padding included.
        requests: numbers of the requests that share it.
        decided: time at which the scheduler chose it.
        began: time at which the executor was called.
        ended: time at which the executor returned or failed.
        expected_ns: duration expected by the cost table, in nanoseconds.
        fault: error message of the executor if it failed, else None.
        retry: whether it repeats a part of a failed run, to find the request that made it fail.
        crossed: bytes that crossed between host and device for it; None where it ran on the host.
    """

    number: int
    lane: int
    model: str
    graph: str
    sizes: Mapping[str, int]
    rows: int
    used: int
    places: int
    requests: tuple[int, ...]
    decided: int
    began: int
    ended: int
    expected_ns: int
    fault: str | None
    retry: bool
    crossed: Crossed | None = None


class Observer(Protocol):
    """Is notified of events; each request has `submitted`, any number of `responded`, and `ended`, in this order."""

    def submitted(self, request: Request) -> None:
        """A request came in; if it is refused at once, `ended` follows with the outcome `dropped`."""
        ...

    def responded(self, request: Request, index: int, now: int) -> None:
        """Response number `index` of a request with several responses is available, counted from 0."""
        ...

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        """A request has ended; `reason` is empty when it is done, else a short constant text."""
        ...

    def executed(self, execution: Execution) -> None:
        """A run has ended, with or without an error."""
        ...

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None:
        """A stream was opened, paused, resumed, restored or ended."""
        ...

    def model_changed(self, model: str, change: ModelChange, now: int) -> None:
        """A model was loaded, swapped or unloaded."""
        ...


PAUSE_S = 1.0
"""Longest time in seconds that a fork waits for an observer."""


class EventBus:
    """Passes events to observers, one at a time and in the order in which they happened.

    Args:
        observers: objects that are notified.

    Attributes:
        wanted: whether there are observers.
        waiting: events that no observer has been notified of yet.
        fault: last error of an observer or of a `when_done` callback; empty without one.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        """Start without events."""
        self.fault = ""
        self.wanted = bool(observers)
        self.waiting: deque[tuple[str, tuple[object, ...]]] = deque()
        self._observers = list(observers)
        self._telling = threading.Lock()
        self._is_paused = False

    def pause(self) -> None:
        """Before a fork: wait until no observer is being called, but at most `PAUSE_S` seconds."""
        self._is_paused = self._telling.acquire(timeout=PAUSE_S)

    def resume(self) -> None:
        """After a fork, in the parent: pass on the events that have come in the meantime."""
        if self._is_paused:
            self._is_paused = False
            self._telling.release()
        self.spread()

    def forget(self) -> None:
        """In a forked child: drop the observers if one was being called, as its locks may be held for ever."""
        if not self._is_paused:
            self._observers.clear()
            self.wanted = False
            self.fault = "the process was forked while observers were told: they hear nothing here"
        self._is_paused, self._telling = False, threading.Lock()

    def note(self, method: str, *told: object) -> None:
        """Add an event; called under the server's lock."""
        self.waiting.append((method, told))

    def spread(self) -> None:
        """Pass on the waiting events, without the server's lock; do nothing if another thread is at it."""
        while self.waiting and self._telling.acquire(blocking=False):
            try:
                while self.waiting:
                    method, told = self.waiting.popleft()
                    for observer in list(self._observers):
                        self._tell(observer, method, told)
            finally:
                self._telling.release()

    def _tell(self, observer: Observer, method: str, told: tuple[object, ...]) -> None:
        try:
            getattr(observer, method)(*told)
        except Exception as error:  # noqa: BLE001 - what an observer does wrong reaches no caller
            self._observers.remove(observer)
            self.wanted = bool(self._observers)
            self.blame(f"{type(observer).__name__}.{method}", error)

    def blame(self, call: str, error: Exception) -> None:
        """Store the error of an observer or callback as `fault`."""
        self.fault = f"{call}: {type(error).__name__}: {error}"
