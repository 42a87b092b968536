"""Tracks admitted requests: their parts are queued, answered or dropped, and every request ends once.

The end of a request takes along what hangs on it: parts that are queued leave the queues, chunks that wait behind one
that will not run are dropped, and whoever waits is woken. Used under the server's lock.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from runtime_lite.errors import Dropped
from runtime_lite.scheduling.task import Task
from runtime_lite.serving.batch import LiveStream, Part, next_chunk
from runtime_lite.serving.events import EventBus, Outcome, Request
from runtime_lite.serving.refusals import LOST
from runtime_lite.serving.request_accounting import RequestAccounting
from runtime_lite.serving.rule import Rule
from runtime_lite.serving.ticket import Outputs, Responses, Ticket
from runtime_lite.serving.versions import Versions


class RequestTracker:
    """The requests of one server that are alive.

    Args:
        scheduler: has the parts that are queued.
        versions: which parts need.
        bus: hears how requests end.
        dismiss: wakes a caller that runs what is decided while it waits.

    Attributes:
        accounting: counts requests by how they ended.
        tickets: requests that are alive, by number.
        queued: parts that the scheduler has and that do not run.
        wakers: of those who wait for what has ended or been answered; called by `wake`.
    """

    def __init__(self, scheduler: Rule, versions: Versions, bus: EventBus, dismiss: Callable[[Any], object]) -> None:
        """Start without a request."""
        self.accounting = RequestAccounting()
        self.tickets: dict[int, Ticket[Any]] = {}
        self.queued = 0
        self._scheduler, self._versions, self._bus, self._dismiss = scheduler, versions, bus, dismiss
        self.wakers: deque[Callable[[], object]] = deque()
        self._quiet: threading.Event | None = None

    def enter(self, ticket: Ticket[Any]) -> None:
        """Give a request its number; from here on it is alive."""
        ticket.number = self.accounting.submit(ticket.service)
        self.tickets[ticket.number] = ticket

    def turn_away(self, model: str, task: Task, reason: str, now: int) -> None:
        """Enter and end a request of which nothing but its task was made."""
        service = task.service.name
        number = self.accounting.submit(service)
        self.accounting.end(number, "dropped", reason)
        if self._bus.wanted:
            request = Request(
                number, model, task.key.graph, service, task.rows, None, None, now, task.soft, task.hard, task.worth
            )
            self._bus.note("submitted", request)
            self._bus.note("ended", request, "dropped", reason, now)

    # Parts

    def queue(self, part: Part, now: int) -> None:
        """Give a part to the scheduler; one that is refused takes its request along."""
        self._versions.pin(part.version)
        refusal = self._scheduler.submit(part.task, now)
        if refusal is None:
            part.queued = True
            self.queued += 1
        else:
            self.let_go(part, refusal, now)

    def unqueue(self, part: Part) -> None:
        """The scheduler has a part no more: it runs, or was dropped."""
        part.queued = False
        self.queued -= 1

    def release(self, part: Part) -> None:
        """A part is neither queued nor runs any more; its task, which queues may remember, lets go of it."""
        part.task.payload = None
        self._versions.unpin(part.version)

    def let_go(self, part: Part, reason: str, now: int) -> None:
        """A part that the scheduler does not have, or no longer: its request ends, and so do those behind it."""
        self.release(part)
        if part.stream is not None:
            part.stream.flying = None
        at = "" if part.pipeline_run is None else f": graph {part.runner.name!r}"
        self.drop(part.ticket, reason, now, at)
        if part.stream is not None:
            self.lose(part.stream, 0, now)

    def follow(self, part: Part, now: int) -> None:
        """Queue what may run now that a part of a pipeline has; a stream goes on with it.

        What is left of an item whose request has ended is let go of, and with it the chunks behind it.
        """
        ticket, stream = part.ticket, part.stream
        assert part.pipeline_run is not None
        for each in part.pipeline_run.ready() if ticket.outcome is None else ():
            if ticket.outcome is None:
                ticket.parts.append(each)
                if stream is not None:
                    stream.flying = each
                self.queue(each, now)
        if stream is not None and stream.flying is None:
            self.lose(stream, 0, now)

    def note_loss(self, ticket: Ticket[Any], stream: LiveStream) -> None:
        """Report to the caller of a request, before its next chunk, that a chunk of its stream did not run.

        Chunks that are lost together are one loss: who learns of the first, or that one was behind it, knows where the
        stream stands. That one was late, say, tells nothing of those before it.
        """
        if ticket.is_known:
            stream.sent -= 1
            return
        if stream.sent == next_chunk(stream):
            return
        if not stream.is_short:
            stream.losses += 1
        if not stream.is_short or ticket.number < stream.first_lost:
            stream.first_lost = ticket.number
        stream.is_short = True
        ticket.loss = stream, stream.losses

    def told(self, ticket: Ticket[Any]) -> None:
        """The caller knows how a request has ended."""
        ticket.is_known = True
        if ticket.loss is not None:
            (stream, number), ticket.loss = ticket.loss, None
            if number == stream.losses and (ticket.reason == LOST or ticket.number == stream.first_lost):
                stream.sent, stream.is_short = next_chunk(stream), False

    def is_last(self, ticket: Ticket[Any]) -> bool:
        """Whether no chunk is behind those of a request."""
        stream = ticket.parts[0].stream if ticket.parts else None
        last = None if stream is None else stream.waiting[-1] if stream.waiting else stream.flying
        return last is not None and last.ticket is ticket

    def lose(self, stream: LiveStream, first: int, now: int) -> None:
        """Drop the chunks that wait in a stream from some place on: one before them did not run."""
        lost = [stream.waiting.pop() for _ in range(len(stream.waiting) - first)][::-1]
        for ticket in dict.fromkeys(part.ticket for part in lost):
            self.drop(ticket, LOST, now)

    # Ends

    def put(self, ticket: Ticket[Any], index: int, outputs: list[Outputs], now: int) -> None:
        """Keep the answer of a part; the last one ends its request."""
        is_last = ticket.put(index, outputs)
        if isinstance(ticket, Responses):
            self.wakers += ticket.wakers
            ticket.wakers = []
            if ticket.request is not None:
                self._bus.note("responded", ticket.request, index, now)
        if is_last:
            self.end(ticket, "done", "", None, now)

    def drop(self, ticket: Ticket[Any], reason: str, now: int, at: str = "") -> None:
        """End a request without an answer, unless it has ended; `at` says where it stood."""
        if ticket.outcome is None:
            error = Dropped(
                f"{ticket.where}{at}: expected an answer, got none: {reason}; submit it again when it can be served",
                reason,
            )
            self.end(ticket, "dropped", reason, error, now)

    def end(self, ticket: Ticket[Any], outcome: Outcome, reason: str, error: BaseException | None, now: int) -> None:
        """End a request that is alive: the one place where one ends."""
        ticket.end(outcome, reason, error)
        self.accounting.end(ticket.number, outcome, reason)
        del self.tickets[ticket.number]
        if ticket.parts:
            stream = ticket.parts[0].stream
            if stream is not None:
                stream.requests -= 1
            if outcome != "done":
                is_less = self._withdraw(ticket, stream, now)
                if stream is not None and (is_less or stream.flying is None or stream.flying.ticket is not ticket):
                    self.note_loss(ticket, stream)  # what runs yet counts, or fails: `Runs` says which
        self.wakers += ticket.wakers
        ticket.wakers = []
        if ticket.worker is not None:
            self._dismiss(ticket.worker)
        ticket.parts, ticket.worker = [], None  # no circles: what a request held is freed with it, not by the collector
        if ticket.request is not None:
            self._bus.note("ended", ticket.request, outcome, reason, now)
        if self._quiet is not None and not self.tickets:
            self._quiet.set()

    def _withdraw(self, ticket: Ticket[Any], stream: LiveStream | None, now: int) -> bool:
        """Take what does not run yet of a request out of the queues; what was behind it in its stream is lost.

        Returns:
            Whether its stream has fewer chunks now.
        """
        before = 0 if stream is None else next_chunk(stream)
        for part in ticket.parts:
            if part.queued:
                self._scheduler.cancel(part.task)
                self.unqueue(part)
                self.release(part)
                if stream is not None:
                    stream.flying = None
                    self.lose(stream, 0, now)
        if stream is not None:
            behind = next((at for at, part in enumerate(stream.waiting) if part.ticket is ticket), None)
            if behind is not None:
                self.lose(stream, behind, now)
        return stream is not None and next_chunk(stream) < before

    # Who waits

    def wake(self) -> None:
        """Wake those whose requests have ended or been answered, outside of the lock; each once, by whichever thread.

        What a thread that is interrupted leaves is rung by the next.
        """
        while self.wakers:
            try:
                waker = self.wakers.popleft()
            except IndexError:  # another thread took the last
                return
            waker()

    def quiet(self) -> threading.Event:
        """Return what is set as soon as no request is alive."""
        self._quiet = threading.Event()
        if not self.tickets:
            self._quiet.set()
        return self._quiet


def part_of(task: Task) -> Part:
    """What a task of the scheduler stands for."""
    assert isinstance(task.payload, Part)
    return task.payload
