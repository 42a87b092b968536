"""Tracks admitted requests: queues their parts, stores answers, and ends and counts every request exactly once.

Ends are counted by class and reason, independently of the list of unended requests, so that `balanced` compares two
counts. When a request ends, its queued parts leave the queues, chunks that wait behind a part that will not run are
dropped, and waiting threads are woken. Methods are called under the server's lock.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime_lite.errors import Dropped, InternalError
from runtime_lite.serving.events import EventBus, Outcome
from runtime_lite.serving.refusals import LOST
from runtime_lite.serving.request import LiveRequest, LiveStream, Outputs, Part, streams_of
from runtime_lite.serving.rule import Rule
from runtime_lite.serving.versions import Versions


@dataclass(frozen=True)
class RequestCounts:
    """Counts of requests at one moment; they equal those of an `Observer` that counts events.

    Attributes:
        submitted: requests that came in, refused ones included.
        live: requests that have not ended.
        ends: number of requests that ended, by service class, outcome and reason; the reason is empty for `done`.
    """

    submitted: int
    live: int
    ends: Mapping[tuple[str, Outcome, str], int]

    def count(self, outcome: Outcome) -> int:
        """Return the number of requests with an outcome."""
        return sum(number for (_, found, _), number in self.ends.items() if found == outcome)

    @property
    def balanced(self) -> bool:
        """Whether submitted = done + dropped + cancelled + failed + live."""
        return self.submitted == sum(self.ends.values()) + self.live


class RequestTracker:
    """The requests of one server that have not ended.

    Args:
        scheduler: holds the queued parts.
        versions: the versions that parts pin.
        bus: passes on events of requests that end.
        dismiss: wakes a caller that executes runs while it waits for its answer.

    Attributes:
        requests: requests that have not ended, by number, oldest first.
        queued: number of parts that are queued and do not run.
        wakers: functions that wake threads whose requests have ended or been answered; `wake` calls them.
    """

    def __init__(self, scheduler: Rule, versions: Versions, bus: EventBus, dismiss: Callable[[Any], object]) -> None:
        """Start without requests."""
        self.requests: dict[int, LiveRequest[Any]] = {}
        self.queued = 0
        self._submitted = 0
        self._ends: Counter[tuple[str, Outcome, str]] = Counter()
        self._scheduler, self._versions, self._bus, self._dismiss = scheduler, versions, bus, dismiss
        self.wakers: deque[Callable[[], object]] = deque()
        self._quiet: threading.Event | None = None

    def enter(self, request: LiveRequest[Any]) -> None:
        """Give a request its number and add it to the requests that have not ended."""
        self._submitted += 1
        request.number = self._submitted
        self.requests[request.number] = request

    def counts(self) -> RequestCounts:
        """Return the current counts."""
        return RequestCounts(self._submitted, len(self.requests), dict(self._ends))

    # Parts

    def queue(self, part: Part, now: int) -> None:
        """Queue a part; if the scheduler refuses it, its request is dropped."""
        part.version.pins += 1
        refusal = self._scheduler.submit(part, now)
        if refusal is None:
            part.queued = True
            self.queued += 1
        else:
            self.let_go(part, refusal, now)

    def unqueue(self, part: Part) -> None:
        """Record that a part has left the scheduler's queues, because it runs or was dropped."""
        part.queued = False
        self.queued -= 1

    def release(self, part: Part) -> None:
        """Record that a part is neither queued nor running any more, and unpin its version."""
        part.release()
        part.version.unpin(self._versions.unneeded)

    def let_go(self, part: Part, reason: str, now: int) -> None:
        """Drop the request of a part that left the queues without a run, and the later chunks of its stream."""
        request, stream = part.request, part.live
        self.release(part)
        if stream is not None:
            stream.flying = None
        at = "" if part.pipeline_run is None else f": graph {part.runner.name!r}"
        self.drop(request, reason, now, at)
        if stream is not None:
            self.lose(stream, 0, now)

    def follow(self, part: Part, now: int) -> None:
        """After a part of a pipeline has run, queue the parts that waited for it.

        If the request has ended, its remaining parts are not queued, and the chunks behind it in its stream are
        dropped.
        """
        request, stream = part.request, part.live
        assert part.pipeline_run is not None
        for ready in part.pipeline_run.ready() if request.outcome is None else ():
            if request.outcome is None:
                request.parts.append(ready)
                if stream is not None:
                    stream.flying = ready
                self.queue(ready, now)
        if stream is not None and stream.flying is None:
            self.lose(stream, 0, now)

    def note_loss(self, request: LiveRequest[Any], stream: LiveStream) -> None:
        """Record that a chunk of a stream did not run; its caller must learn of it before the next chunk.

        Chunks that are lost together are one loss. A caller knows which chunk is next once it has read the error of the
        first lost chunk, or one that says that an earlier chunk was lost. Another error, such as a missed deadline,
        says nothing about earlier chunks.
        """
        if request.is_known:
            stream.sent -= 1
            return
        if stream.sent == stream.next_chunk():
            return
        if not stream.is_short:
            stream.losses += 1
        if not stream.is_short or request.number < stream.first_lost:
            stream.first_lost = request.number
        stream.is_short = True
        request.loss = stream, stream.losses

    def told(self, request: LiveRequest[Any]) -> None:
        """Record that the caller has learned how a request has ended."""
        request.is_known = True
        if request.loss is not None:
            (stream, number), request.loss = request.loss, None
            if number == stream.losses and (request.reason == LOST or request.number == stream.first_lost):
                stream.sent, stream.is_short = stream.next_chunk(), False

    def is_last(self, request: LiveRequest[Any]) -> bool:
        """Return whether no chunk of the stream follows those of a request."""
        stream = request.parts[0].live if request.parts else None
        last = None if stream is None else stream.waiting[-1] if stream.waiting else stream.flying
        return last is not None and last.request is request

    def lose(self, stream: LiveStream, first: int, now: int) -> None:
        """Drop the waiting chunks of a stream from index `first` on, because a chunk before them did not run."""
        lost = [stream.waiting.pop() for _ in range(len(stream.waiting) - first)][::-1]
        for request in dict.fromkeys(part.request for part in lost):
            self.drop(request, LOST, now)

    # Ends

    def put(self, request: LiveRequest[Any], index: int, outputs: list[Outputs], now: int) -> None:
        """Store the answer of a part; the last one ends its request."""
        is_last = request.put(index, outputs)
        if request.is_response(index):
            self._wake_soon(request.readers)
            if request.holds_back:
                self._wake_soon(request.wakers)
            if request.told is not None:
                self._bus.note("responded", request.told, index, now)
        if is_last:
            self.end(request, "done", "", None, now)

    def drop(self, request: LiveRequest[Any], reason: str, now: int, at: str = "") -> None:
        """End a request without an answer, unless it has ended; `at` is the place to name in the message."""
        if request.outcome is None:
            error = Dropped(
                f"{request.where}{at}: expected an answer, got none: {reason}; submit it again when it can be served",
                reason,
            )
            self.end(request, "dropped", reason, error, now)

    def end(
        self, request: LiveRequest[Any], outcome: Outcome, reason: str, error: BaseException | None, now: int
    ) -> None:
        """End a request that has not ended; requests end nowhere else.

        Raises:
            InternalError: it has ended before, or was never entered.
        """
        if self.requests.get(request.number) is not request:
            raise InternalError(f"requests: expected a live request, got {request.number}, which is none; report this")
        del self.requests[request.number]
        request.end(outcome, reason, error)
        self._ends[request.service, outcome, reason] += 1
        streams: list[LiveStream | None] = [*streams_of(request)]
        for stream in streams or [None]:
            if stream is not None:
                stream.requests -= 1
            if outcome != "done":
                is_less = self._withdraw(request, stream, now)
                if stream is not None and (is_less or stream.flying is None or stream.flying.request is not request):
                    self.note_loss(request, stream)  # what runs yet counts, or fails: `Runs` says which
        if request.readers or request.wakers:
            self._wake_soon(request.readers)
            self._wake_soon(request.wakers)
        if request.worker is not None:
            self._dismiss(request.worker)
        request.parts, request.worker = [], None  # no circles: what it held is freed with it, not by the collector
        if request.told is not None:
            self._bus.note("ended", request.told, outcome, reason, now)
        if self._quiet is not None and not self.requests:
            self._quiet.set()

    def _withdraw(self, request: LiveRequest[Any], stream: LiveStream | None, now: int) -> bool:
        """Remove parts of a request in one stream from the queues, and drop the chunks behind them there.

        Returns:
            Whether the stream has fewer chunks than before.
        """
        before = 0 if stream is None else stream.next_chunk()
        for part in request.parts:
            if part.live is stream and part.queued:
                self._scheduler.cancel(part)
                self.unqueue(part)
                self.release(part)
                if stream is not None:
                    stream.flying = None
                    self.lose(stream, 0, now)
        if stream is not None:
            behind = next((position for position, part in enumerate(stream.waiting) if part.request is request), None)
            if behind is not None:
                self.lose(stream, behind, now)
        return stream is not None and stream.next_chunk() < before

    # Who waits

    def _wake_soon(self, wakers: list[Callable[[], object]]) -> None:
        self.wakers += wakers
        wakers.clear()

    def wake(self) -> None:
        """Wake the threads whose requests have ended or been answered, without the lock; each once.

        If a thread is interrupted here, the next one wakes the rest.
        """
        while self.wakers:
            try:
                waker = self.wakers.popleft()
            except IndexError:  # another thread took the last
                return
            waker()

    def quiet(self) -> threading.Event:
        """Return an event that is set as soon as every request has ended."""
        self._quiet = threading.Event()
        if not self.requests:
            self._quiet.set()
        return self._quiet
