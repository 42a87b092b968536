"""Sends planned requests to a runtime at their arrival times, and records how they end."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime_lite.errors import BadInput, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.load_test.arrivals import NS_PER_S, Arrival, Kind
from runtime_lite.load_test.findings import Served
from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange


class Sent(Protocol):
    """A submitted request."""

    @property
    def number(self) -> int:
        """The number of the request in the runtime."""
        ...


class OpenStream(Protocol):
    """An open stream, to which chunks can be submitted."""

    def submit(self, feeds: Mapping[str, Array]) -> Sent: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Source:
    """The feeds of requests of one kind, and how to submit them.

    Attributes:
        feeds: recorded feeds, used one after the other; a stream begins with the first.
        submit: submits a single request.
        open_stream: opens a stream; None for single requests.
    """

    feeds: Sequence[Mapping[str, Array]]
    submit: Callable[[Mapping[str, Array]], Sent]
    open_stream: Callable[[], OpenStream] | None = None


class Ends:
    """An observer that records the end of every request, and every run.

    Attributes:
        outcomes: outcome, reason and time by number of the request.
        executions: runs in the order of their ends.
        cpu_s: computing time of the process from the first request to the last end, in seconds.
    """

    def __init__(self) -> None:
        """Start without records."""
        self.outcomes: dict[int, tuple[Outcome, str, int]] = {}
        self.executions: list[Execution] = []
        self.cpu_s = 0.0

    def submitted(self, request: Request) -> None: ...
    def responded(self, request: Request, index: int, now: int) -> None: ...

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        self.outcomes[request.number] = outcome, reason, now

    def executed(self, execution: Execution) -> None:
        self.executions.append(execution)

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None: ...
    def model_changed(self, model: str, change: ModelChange, now: int) -> None: ...


def drive(
    arrivals: Sequence[Arrival],
    sources: Mapping[Kind, Source],
    drain: Callable[[], object],
    ends: Ends,
    clock: Callable[[], int] = time.monotonic_ns,
    wait: Callable[[float], object] = time.sleep,
) -> list[Served]:
    """Send every request at its time, wait until all have ended, and return how they ended.

    Existing objects are kept from the garbage collector, whose pauses would be counted as the runtime's: a pass over a
    million objects takes half a second.

    Args:
        arrivals: planned requests in the order of time.
        sources: sources by kind of request.
        drain: returns when all submitted requests have ended.
        ends: an observer of the runtime.
        clock: the runtime's clock.
        wait: waits for a number of seconds.
    """
    streams = _Streams(ends)
    sent: list[tuple[int | str, int]] = []  # not what was answered: a caller lets go of that, too
    with _uncollected():
        start, used = clock(), time.process_time()
        for arrival in arrivals:
            early = start + arrival.at - clock()
            if early > 0:
                wait(early / NS_PER_S)
            now = clock() - start
            sent.append((_send(arrival, sources[arrival.kind], streams), now))
        drain()
        ends.cpu_s = time.process_time() - used
    streams.close()
    return [_served(*pair, ends, start) for pair in zip(arrivals, sent, strict=True)]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep existing objects, such as the arrivals, from the garbage collector."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _send(arrival: Arrival, source: Source, streams: "_Streams") -> int | str:
    """Submit a request; return its number, or why it was refused."""
    try:
        if source.open_stream is None:
            return source.submit(source.feeds[(arrival.source + arrival.item) % len(source.feeds)]).number
        return streams.push(arrival, source.feeds[arrival.item % len(source.feeds)], source.open_stream)
    except Overloaded as error:
        return error.reason


class _Streams:
    """Streams by number, each open from its first chunk until its last one has ended."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._open: dict[int, OpenStream] = {}
        self._ending: list[tuple[OpenStream, int]] = []

    def push(self, arrival: Arrival, given: Mapping[str, Array], open_stream: Callable[[], OpenStream]) -> int | str:
        """Send a chunk and return its number; or why it was not sent: its stream was refused or has ended.

        Raises:
            Overloaded: the runtime refuses the chunk, or, if it is the first one, the stream.
        """
        if arrival.item == 0:
            self._close_ended()
            self._open[arrival.source] = open_stream()
        stream = self._open.get(arrival.source)
        if stream is None:
            return "stream refused"
        try:
            number = stream.submit(given).number
        except BadInput:
            if arrival.item == 0:
                raise
            return "stream ended"
        if arrival.last:
            self._ending.append((self._open.pop(arrival.source), number))
        return number

    def _close_ended(self) -> None:
        ended = [pair for pair in self._ending if pair[1] in self._ends.outcomes]
        self._ending = [pair for pair in self._ending if pair not in ended]
        for stream, _ in ended:
            stream.close()

    def close(self) -> None:
        """Close all open streams."""
        for stream in [*self._open.values(), *(stream for stream, _ in self._ending)]:
            stream.close()


def _served(arrival: Arrival, sent: tuple[int | str, int], ends: Ends, start: int) -> Served:
    number, now = sent
    if isinstance(number, str):
        return Served(arrival, "refused", number, now, now)
    outcome, reason, ended = ends.outcomes[number]
    return Served(arrival, outcome, reason, ended - start, now)
