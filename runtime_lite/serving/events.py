"""Defines the events of the server that metrics, traces and views receive, and the protocol of their observers.

All times are those of the server's clock, monotonic integer nanoseconds. Records are made only when somebody listens.
Observers are called by the thread that does the work and outside of the server's lock, often by several at once: they
are quick, thread-safe and raise nothing. One that raises is not asked again, and the server goes on.
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
"""What happens to a stream; `expired` and `slow` end it against the caller's will, for idling and for not reading."""

ModelChange = Literal["loaded", "swapped", "unloaded"]


@dataclass(frozen=True, slots=True)
class Request:
    """One admitted or refused request, as it was submitted.

    Attributes:
        number: counted per runtime, from 1.
        model: name of the model, with a number behind it while another version, or model, of that name is there.
        graph: graph name.
        service: name of its service class.
        rows: rows of its feed.
        stream: number of its stream, or None.
        sequence: number of its chunk in the stream, from 0; or None.
        arrival: when it was submitted.
        soft: when a good answer should be out.
        hard: when its answer is worthless; None for never.
        worth: frames in it: its rows, times their true lengths where these differ.
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
    """One run of one graph on one lane; told when it has ended.

    Attributes:
        number: counted per runtime, from 1.
        lane: which of the runs that may be in flight at once, from 0.
        model: name of the model.
        graph: graph name.
        sizes: bucket of every axis.
        rows: rows in use; the batch axis of `sizes` has as many or more.
        used: places of the inputs of role data that hold a caller's values.
        places: places of the inputs of role data.
        requests: numbers of the requests that share it.
        decided: when the scheduler chose it.
        began: when the executor was called.
        ended: when the executor returned or failed.
        expected_ns: what the cost table said that it takes.
        fault: what the executor said when it failed, else None.
        retry: whether it looks for the bad item of a run that failed.
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
    """Hears what happens, in order for each request: `submitted`, any `responded`, `ended`."""

    def submitted(self, request: Request) -> None:
        """A request came in; one that is refused at once is `ended` as dropped."""
        ...

    def responded(self, request: Request, index: int, now: int) -> None:
        """A response of a request with many of them is out, counted from 0."""
        ...

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        """A request has ended; `reason` is empty when it is done, else a short constant text."""
        ...

    def executed(self, execution: Execution) -> None:
        """A run has ended, well or not."""
        ...

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None:
        """A stream was opened, paused, resumed, restored or ended."""
        ...

    def model_changed(self, model: str, change: ModelChange, now: int) -> None:
        """A model was loaded, swapped or unloaded."""
        ...


PAUSE_S = 1.0
"""A fork waits no longer for an observer."""


class EventBus:
    """Brings what happened to observers in the order in which it happened, one event at a time.

    Args:
        observers: who hears.

    Attributes:
        wanted: whether anybody listens.
        waiting: events that are kept and that nobody has been told.
        fault: what somebody did wrong who was told; empty without one.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        """Start with nothing to tell."""
        self.fault = ""
        self.wanted = bool(observers)
        self.waiting: deque[tuple[str, tuple[object, ...]]] = deque()
        self._observers = list(observers)
        self._telling = threading.Lock()
        self._is_paused = False

    def pause(self) -> None:
        """Before a fork of the process: wait until nobody is being told, but for no observer that hangs."""
        self._is_paused = self._telling.acquire(timeout=PAUSE_S)

    def resume(self) -> None:
        """Behind it: tell what has come meanwhile."""
        if self._is_paused:
            self._is_paused = False
            self._telling.release()
        self.spread()

    def forget(self) -> None:
        """In the fork: an observer that was being told, by a thread that is not here, may hold its locks for ever."""
        if not self._is_paused:
            self._observers.clear()
            self.wanted = False
            self.fault = "the process was forked while observers were told: they hear nothing here"
        self._is_paused, self._telling = False, threading.Lock()

    def note(self, method: str, *told: object) -> None:
        """Keep an event, under the server's lock."""
        self.waiting.append((method, told))

    def spread(self) -> None:
        """Tell what is kept, outside of the server's lock; a thread that finds another one telling leaves it to it."""
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
        """Keep what somebody did wrong who was told."""
        self.fault = f"{call}: {type(error).__name__}: {error}"
