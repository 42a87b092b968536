"""Glues scheduler, slots, executors and tickets of one runtime: who runs what, when, and how it ends.

A lane is one run in flight. A caller that waits for its answer runs it itself when a lane is free, and while it waits
it takes whatever run is decided; `crew.py` has the threads. All books are kept under one lock; graphs run, and
observers hear, outside of it. A chunk whose run succeeded has moved its stream on, even if its caller no longer wants
the answer; a chunk that did not run has not, and takes those behind it along.
"""

import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, initial_state
from runtime_lite.errors import BadInput, Dropped, Overloaded
from runtime_lite.format.manifest import bucket_name
from runtime_lite.scheduling.clock import NS_PER_MS, Clock
from runtime_lite.scheduling.cost_table import CostTable, costs_of_graph, key_of
from runtime_lite.scheduling.scheduler import Decision, Run
from runtime_lite.scheduling.task import Key, ServiceClass, Task
from runtime_lite.serving.batch import (
    Answer,
    LiveStream,
    Part,
    StreamOptions,
    Version,
    places_used,
    run_parts,
    step_parts,
)
from runtime_lite.serving.crew import Crew, Hand
from runtime_lite.serving.events import Execution, ModelChange, News, Observer, Outcome, Request, StreamChange
from runtime_lite.serving.ledger import Balance, Ledger
from runtime_lite.serving.slots import Slots
from runtime_lite.serving.ticket import Outputs, Responses, Ticket

SLOW_READER_NS = 30_000 * NS_PER_MS
"""A stream whose reader leaves its ring full for so long is ended."""

STUCK_NS, STUCK_RATIO = 5_000 * NS_PER_MS, 20
"""A run is stuck when it takes this long, and this many times longer than expected."""

FAILURES = 3
"""So many runs that fail one after the other are no accident of a feed."""

MODEL_CLOSED = "model closed"
LOST = "a chunk before it was lost"
LATE = "late"
SLOW = "slow reader"
IDLE = "idle"


class RetiredError(Exception):
    """A version was swapped or unloaded between the caller's look at it and the queue."""


class Start(NamedTuple):
    """What a stream goes on from.

    Attributes:
        state: what it carries.
        done: how many chunks made it.
    """

    state: StreamState
    done: int


class Scheduler(Protocol):
    """The rule (`runtime_lite.scheduling`), as the server sees it; tests put a puppet in its place."""

    def open_stream(self, number: int, key: Key, service: ServiceClass, period_ns: int) -> str | None: ...
    def close_stream(self, number: int) -> None: ...
    def submit(self, task: Task, now: int) -> str | None: ...
    def cancel(self, task: Task) -> bool: ...
    def resize(self, lanes: int) -> None: ...
    def decide(self, now: int) -> Decision: ...
    def finished(self, run: Run, now: int, failed: bool = False) -> None: ...
    def forget(self, model: str) -> None: ...


@dataclass(eq=False, slots=True)
class Batch:
    """A decided run on its lane.

    Attributes:
        run: what was decided.
        lane: which of the lanes.
        number: counted per runtime, from 1.
        decided: when.
    """

    run: Run
    lane: int
    number: int
    decided: int


@dataclass(frozen=True)
class Health:
    """Whether a runtime does its work.

    Attributes:
        healthy: runs end, or there is nothing to do.
        reason: why not; empty when it is.
        queued: requests, or chunks of them, that wait for a run.
        running: runs in flight.
        streams: open streams.
        draining: whether new work is refused.
        observer_fault: what an observer did wrong that is not asked any more; empty while all are.
    """

    healthy: bool
    reason: str
    queued: int
    running: int
    streams: int
    draining: bool
    observer_fault: str


@dataclass(frozen=True)
class DrainReport:
    """What became of what was there when a runtime was drained.

    Attributes:
        finished: requests that ended by themselves.
        dropped: numbers of the requests that the limit cut off.
        seconds: how long it took.
    """

    finished: int
    dropped: tuple[int, ...]
    seconds: float


class Server:
    """Serves the requests of one runtime.

    Args:
        lanes: runs that may be in flight at once.
        max_streams: streams that may be open at once.
        scheduler: decides what runs.
        costs: its cost table.
        clock: monotonic nanoseconds; with another than the machine's nothing ticks by itself, and `tick` is called.
        observers: who hears what happens.
    """

    def __init__(
        self,
        lanes: int,
        max_streams: int,
        scheduler: Scheduler,
        costs: CostTable,
        clock: Clock = time.monotonic_ns,
        observers: Sequence[Observer] = (),
    ) -> None:
        """Start with nothing to do and no thread."""
        self.lock = threading.Lock()
        self.clock = clock
        self.ledger = Ledger()
        self.news = News(observers)
        self._scheduler, self._costs = scheduler, costs
        self._slots, self._max_streams = Slots(max_streams), max_streams
        self._lanes, self._most_lanes = list(range(lanes))[::-1], lanes
        self._crew: Crew[Batch] = Crew(self._execute, self.tick, clock, self.lock)
        self._tickets: dict[int, Ticket[Any]] = {}
        self._queued = 0
        self._flying: dict[Batch, None] = {}
        self._runs = self._failures = 0
        self._last_fault = ""
        self._streams: dict[int, LiveStream] = {}
        self._streams_opened = 0
        self._dues: list[tuple[int, int, str]] = []
        self._gate = ""
        self._quiet: threading.Event | None = None
        self._bells: list[Callable[[], object]] = []
        self._to_close: list[Version] = []

    # Requests

    def call(self, ticket: Ticket[Any], version: Version, parts: Sequence[Part]) -> None:
        """Serve a request whose caller waits: when this returns, its ticket has ended.

        Raises:
            BadInput: the model or the stream is closed.
            Overloaded: it is refused.
        """
        me: Hand[Batch] = Hand(ticket.done)
        batch = self._enter(ticket, version, parts, me)
        try:
            while batch is not None or ticket.outcome is None:
                if batch is None:
                    self._after()
                    batch = me.sleep()
                else:
                    batch = self._execute(batch, me)
        except BaseException:
            self._leave(ticket, me)
            raise
        finally:
            self._after()

    def submit(self, ticket: Ticket[Any], version: Version, parts: Sequence[Part]) -> None:
        """Queue a request; workers serve it.

        Raises:
            BadInput: the model or the stream is closed.
            Overloaded: it is refused.
        """
        try:
            self._enter(ticket, version, parts, None)
        finally:
            self._after()

    def _enter(
        self, ticket: Ticket[Any], version: Version, parts: Sequence[Part], me: Hand[Batch] | None
    ) -> Batch | None:
        """Admit and queue a request; return what its caller is to run, which sleeps otherwise."""
        with self.lock:
            now = self.clock()
            ticket.hand = me
            self._admit(ticket, version, parts, now)
            ticket.parts = list(parts)
            stream = parts[0].stream if parts else None
            if stream is not None:
                stream.last = now
                stream.requests += 1
                stream.waiting.extend(parts)
                self._advance(stream, now)
            elif not parts:
                self._end(ticket, "done", "", None, now)
            else:
                for part in parts:
                    if ticket.outcome is None:
                        self._queue(part, now)
            if ticket.outcome == "dropped":
                raise _overloaded(ticket.where, ticket.reason)
            batch = self._dispatch(now, me)
            if me is not None and batch is None:
                self._crew.rest(me)
            return batch

    def _admit(self, ticket: Ticket[Any], version: Version, parts: Sequence[Part], now: int) -> None:
        stream = parts[0].stream if parts else None
        if stream is not None:
            self._check_chunk(stream, ticket)
        if version.retired and stream is None:
            raise RetiredError
        ticket.number = self.ledger.submit(ticket.service)
        self._tickets[ticket.number] = ticket
        if self.news.wanted:
            ticket.request = self._request(ticket, version, parts, stream, now)
            self.news.note("submitted", ticket.request)
        refusal = self._gate
        if stream is not None and stream.requests >= stream.options.credits:
            refusal = "credits"
        if refusal:
            self._drop(ticket, refusal, now)
            raise _overloaded(ticket.where, refusal)

    def cancel(self, ticket: Ticket[Any]) -> bool:
        """Take a request back; whether it was alive."""
        with self.lock:
            if ticket.outcome is not None:
                return False
            now = self.clock()
            self._end(ticket, "cancelled", "by its caller", None, now)
            self._dispatch(now, None)
        self._after()
        return True

    def _leave(self, ticket: Ticket[Any], me: Hand[Batch]) -> None:
        """A caller was interrupted: its request is taken back, and what it was handed goes to another."""
        with self.lock:
            now = self.clock()
            batch = self._crew.leave(me)
            if ticket.outcome is None:
                self._end(ticket, "cancelled", "interrupted", None, now)
            if batch is not None:
                self._crew.hand_over(batch, None)
            self._dispatch(now, None)

    # Runs

    def _queue(self, part: Part, now: int) -> None:
        """Give a part to the scheduler; one that is refused takes its request along."""
        part.version.pins += 1
        refusal = self._scheduler.submit(part.task, now)
        if refusal is None:
            part.queued = True
            self._queued += 1
        else:
            self._let_go(part, refusal, now)

    def _dispatch(self, now: int, me: Hand[Batch] | None) -> Batch | None:
        """Hand out what the scheduler decides; the first run is for the hand that asks, if one does."""
        mine = None
        while self._queued:
            decision = self._scheduler.decide(now)
            for task, reason in decision.dropped:
                part = _part_of(task)
                self._queued -= 1
                part.queued = False
                self._let_go(part, reason, now)
            if decision.run is None:
                if decision.wake is not None:
                    self._crew.ring_at(decision.wake)
                break
            self._runs += 1
            batch = Batch(decision.run, self._lanes.pop(), self._runs, now)
            self._flying[batch] = None
            for task in decision.run.tasks:
                _part_of(task).queued = False
                self._queued -= 1
            if me is not None and mine is None:
                mine = batch
            else:
                wished = (_part_of(task).ticket.hand for task in decision.run.tasks)
                self._crew.hand_over(batch, next((hand for hand in wished if hand is not None), None))
        return mine

    def _let_go(self, part: Part, reason: str, now: int) -> None:
        """A part that the scheduler does not have, or no longer: its request ends, and so do those behind it."""
        self._release(part)
        if part.stream is not None:
            part.stream.flying = None
        self._drop(part.ticket, reason, now)
        if part.stream is not None:
            self._lose(part.stream, 0, now)

    def _execute(self, batch: Batch, hand: Hand[Batch]) -> Batch | None:
        """Run a batch, settle it, and return what the hand is to run next; without anything it sleeps."""
        parts = [_part_of(task) for task in batch.run.tasks]
        try:
            answers = run_parts(parts, lambda some: self._attempt(batch, some, retry=len(some) < len(parts)))
        except BaseException:  # an interrupt of the thread that runs it, not of those whose rows are in it
            self._abandon(batch, parts, hand)
            raise
        with self.lock:
            now = self.clock()
            self._note_failures(batch, answers)
            self._land(batch, now, failed=any(isinstance(answer, Exception) for _, answer in answers))
            for part, answer in answers:
                self._settle(part, answer, now)
            following = self._dispatch(now, None if hand.done is not None and hand.done() else hand)
            if following is None:
                self._crew.rest(hand)
        self._after()
        return following

    def _attempt(self, batch: Batch, parts: Sequence[Part], retry: bool) -> list[Answer]:
        """Run some parts of a batch, and tell of it."""
        run, axis = batch.run, parts[0].runner.graph.batch_axis
        rows = sum(part.task.rows for part in parts)
        sizes = dict(run.key.sizes)
        if axis is not None:
            sizes[axis] = self._rows_for(run, rows) if retry else run.rows
        states = [None if part.stream is None else self._slots.state(part.stream.hold) for part in parts]
        began, fault = self.clock(), None
        try:
            return step_parts(parts, states, sizes)
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"
            raise
        finally:
            if self.news.wanted:
                used, places = places_used(parts, sizes)
                numbers = tuple(part.ticket.number for part in parts)
                ended = self.clock()
                told = Execution(
                    batch.number,
                    batch.lane,
                    run.key.model,
                    run.key.graph,
                    sizes,
                    rows,
                    used,
                    places,
                    numbers,
                    batch.decided,
                    began,
                    ended,
                    run.expected_ns,
                    fault,
                    retry,
                )
                self.news.note("executed", told)

    def _rows_for(self, run: Run, rows: int) -> int:
        return next(size for size in self._costs.row_buckets(run.key) if size >= rows)

    def _land(self, batch: Batch, now: int, failed: bool) -> None:
        """A lane is free again. The first run of a bucket may have opened its session: no cost is learnt from it."""
        del self._flying[batch]
        if batch.lane < self._most_lanes:
            self._lanes.append(batch.lane)
        bucket, warm = (batch.run.key, batch.run.rows), _part_of(batch.run.tasks[0]).version.warm
        is_cold = bucket not in warm
        if is_cold and not failed:
            warm.add(bucket)
        self._scheduler.finished(batch.run, now, failed or is_cold)

    def _settle(self, part: Part, answer: Answer, now: int) -> None:
        """Move a stream on and end a request, or put its response."""
        ticket, stream = part.ticket, part.stream
        self._release(part)
        if stream is not None:
            stream.flying, stream.last = None, now
        if isinstance(answer, Exception):
            if ticket.outcome is None:
                self._end(ticket, "failed", type(answer).__name__, answer, now)
            if stream is not None:
                self._lose(stream, 0, now)
            return
        outputs, states = answer
        if stream is not None and self._slots.commit(stream.hold, states[0]):
            stream.done += 1
        if ticket.outcome is None:
            if part.task.hard is not None and now > part.task.hard:
                self._drop(ticket, LATE, now)
            else:
                self._put(ticket, part.index, outputs, now)
        if stream is not None:
            self._advance(stream, now)

    def _put(self, ticket: Ticket[Any], index: int, outputs: list[Outputs], now: int) -> None:
        is_last = ticket.put(index, outputs)
        if isinstance(ticket, Responses):
            self._bells += ticket.wakers
            ticket.wakers = []
            if ticket.request is not None:
                self.news.note("responded", ticket.request, index, now)
        if is_last:
            self._end(ticket, "done", "", None, now)

    def _abandon(self, batch: Batch, parts: Sequence[Part], hand: Hand[Batch]) -> None:
        """Give a run that its thread was torn from to others, without what that thread had asked for."""
        with self.lock:
            now = self.clock()
            self._land(batch, now, failed=True)
            for part in parts:
                self._release(part)
                if part.ticket.hand is hand or part.ticket.outcome is not None:
                    if part.stream is not None:
                        part.stream.flying = None
                    if part.ticket.outcome is None:
                        self._end(part.ticket, "cancelled", "interrupted", None, now)
                    if part.stream is not None:
                        self._lose(part.stream, 0, now)
                else:
                    part.task = replace(part.task)
                    part.task.payload = part
                    self._queue(part, now)
            self._dispatch(now, None)

    def _note_failures(self, batch: Batch, answers: Sequence[tuple[Part, Answer]]) -> None:
        faults = [answer for _, answer in answers if isinstance(answer, Exception) and not isinstance(answer, BadInput)]
        if len(faults) < len(answers):
            self._failures = 0
        else:
            self._failures += 1
            self._last_fault = f"{batch.run.key.model}: {type(faults[0]).__name__}: {faults[0]}"

    # Ends

    def _drop(self, ticket: Ticket[Any], reason: str, now: int) -> None:
        """End a request without an answer, unless it has ended."""
        if ticket.outcome is None:
            error = Dropped(
                f"{ticket.where}: expected an answer, got none: {reason}; submit it again when it can be served", reason
            )
            self._end(ticket, "dropped", reason, error, now)

    def _end(self, ticket: Ticket[Any], outcome: Outcome, reason: str, error: BaseException | None, now: int) -> None:
        """End a request that is alive: the one place where one ends."""
        ticket.end(outcome, reason, error)
        self.ledger.end(ticket.number, outcome, reason)
        del self._tickets[ticket.number]
        if ticket.parts:
            stream = ticket.parts[0].stream
            if stream is not None:
                stream.requests -= 1
            if outcome != "done":
                self._withdraw(ticket, stream, now)
        self._bells += ticket.wakers
        ticket.wakers = []
        if ticket.hand is not None:
            self._crew.dismiss(ticket.hand)
        ticket.parts, ticket.hand = [], None  # no circles: what a request held is freed with it, not by the collector
        if ticket.request is not None:
            self.news.note("ended", ticket.request, outcome, reason, now)
        if self._quiet is not None and not self._tickets:
            self._quiet.set()

    def _withdraw(self, ticket: Ticket[Any], stream: LiveStream | None, now: int) -> None:
        """Take what does not run yet of a request out of the queues; what was behind it in its stream is lost."""
        for part in ticket.parts:
            if part.queued:
                self._scheduler.cancel(part.task)
                part.queued = False
                self._queued -= 1
                self._release(part)
                if stream is not None:
                    stream.flying = None
                    self._lose(stream, 0, now)
        if stream is not None:
            behind = next((at for at, part in enumerate(stream.waiting) if part.ticket is ticket), None)
            if behind is not None:
                self._lose(stream, behind, now)

    def _lose(self, stream: LiveStream, first: int, now: int) -> None:
        """Drop the chunks that wait in a stream from some place on: one before them did not run."""
        lost = [stream.waiting.pop() for _ in range(len(stream.waiting) - first)][::-1]
        for ticket in dict.fromkeys(part.ticket for part in lost):
            self._drop(ticket, LOST, now)

    def _release(self, part: Part) -> None:
        """A part is neither queued nor runs any more; its task, which queues may remember, lets go of it."""
        part.task.payload = None
        self._unpin(part.version)

    def _unpin(self, version: Version) -> None:
        version.pins -= 1
        if version.retired and not version.pins:
            self._to_close.append(version)

    # Streams

    def open_stream(
        self, version: Version, runner: GraphRunner, rows: int, options: StreamOptions, start: Start | None = None
    ) -> LiveStream:
        """Open a stream.

        Args:
            version: what it is pinned to.
            runner: of its graph.
            rows: of every chunk.
            options: what the caller says about it.
            start: what it goes on from, in a version that a stream is pinned to; None for the initial states.

        Raises:
            Overloaded: no slot is free, the streams would take too much of the device, or it takes no work.
        """
        where = f"{runner.name}.open_stream"
        state, done = start or (initial_state(runner.graph, rows), 0)
        with self.lock:
            now = self.clock()
            if version.gone.is_set() or (version.retired and start is None):
                raise RetiredError
            hold = None if self._gate else self._slots.take(state)
            if hold is None:
                raise _overloaded(where, self._gate or f"all {self._max_streams} slots are taken")
            self._streams_opened += 1
            if options.period_ns is not None:
                key = version.first_key(runner)
                refusal = self._scheduler.open_stream(self._streams_opened, key, options.service, options.period_ns)
                if refusal is not None:
                    self._slots.free(hold)
                    raise _overloaded(where, refusal)
            version.pins += 1
            stream = LiveStream(self._streams_opened, version, runner, rows, hold, options, now, done=done)
            self._streams[stream.number] = stream
            if options.idle_ns is not None:
                self._watch(stream, now + options.idle_ns, IDLE)
            self._tell_stream(stream, "opened" if start is None else "restored", "", now)
        self._after()
        return stream

    def close_stream(self, stream: LiveStream) -> bool:
        """End a stream; whether it was open. What it has not answered is dropped."""
        with self.lock:
            was_open = self._end_stream(stream, "closed", "closed", self.clock())
        self._after()
        return was_open

    def state_of(self, stream: LiveStream) -> StreamState:
        """What a stream carries; nothing once it has ended."""
        with self.lock:
            state = self._slots.state(stream.hold)
            return StreamState(stream.rows, {}, {}) if state is None else state

    def exchange(self, stream: LiveStream, where: str, change: Callable[[Start], Start]) -> None:
        """Look at what a stream at rest carries, and let it carry on from what `change` returns.

        Raises:
            BadInput: it has ended, or a chunk is on its way.
        """
        with self.lock:
            self._check_stream(stream, where)
            state = self._slots.state(stream.hold)
            if stream.requests or stream.flying is not None or state is None:
                raise BadInput(
                    f"{where}: expected a stream at rest, got one with a chunk on its way; wait for its answer first"
                )
            state, stream.done = change(Start(state, stream.done))
            self._slots.commit(stream.hold, state)
            stream.last = self.clock()

    def check_stream(self, stream: LiveStream, where: str) -> None:
        """Refuse a stream that has ended.

        Raises:
            BadInput: it has.
        """
        with self.lock:
            self._check_stream(stream, where)

    def _check_chunk(self, stream: LiveStream, ticket: Ticket[Any]) -> None:
        """Refuse what must not follow in a stream: a push during another, or a chunk out of order."""
        self._check_stream(stream, ticket.where)
        if ticket.hand is not None and stream.requests:
            raise BadInput(
                f"{ticket.where}: expected one push at a time, got a push during another; "
                "give each thread a stream of its own"
            )
        expected = _next_chunk(stream)
        if ticket.sequence is not None and ticket.sequence != expected:
            raise BadInput(
                f"{ticket.where}: expected chunk {expected} of the stream, got {ticket.sequence}; "
                "push every chunk once and in order"
            )

    def _check_stream(self, stream: LiveStream, where: str) -> None:
        if stream.ended == MODEL_CLOSED:
            expected, got, cure = "a stream of an open model", "one of a closed model", "load the bundle again"
        elif stream.ended == "closed":
            expected, got, cure = "an open stream", "a closed one", "open another with open_stream()"
        elif stream.ended:
            expected, got, cure = "an open stream", f"one that ended: {stream.ended}", "open another with open_stream()"
        else:
            return
        raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")

    def response_taken(self, ticket: Responses) -> None:
        """A reader made room in its ring: its stream goes on."""
        with self.lock:
            stream = ticket.parts[0].stream if ticket.parts else None
            if stream is None or stream.full_since is None or ticket.full:
                return
            now = self.clock()
            stream.full_since = None
            self._tell_stream(stream, "resumed", "", now)
            self._advance(stream, now)
            self._dispatch(now, None)
        self._after()

    def _advance(self, stream: LiveStream, now: int) -> None:
        """Queue the next chunk of a stream, if none is in flight and its reader keeps up."""
        while stream.flying is None and stream.waiting:
            part = stream.waiting[0]
            if isinstance(part.ticket, Responses) and part.ticket.full:
                if stream.full_since is None:
                    stream.full_since = now
                    self._watch(stream, now + SLOW_READER_NS, SLOW)
                    self._tell_stream(stream, "paused", SLOW, now)
                return
            stream.flying = stream.waiting.popleft()
            self._queue(part, now)

    def _end_stream(self, stream: LiveStream, change: StreamChange, reason: str, now: int) -> bool:
        if stream.ended:
            return False
        stream.ended = reason
        del self._streams[stream.number]
        self._slots.free(stream.hold)
        self._scheduler.close_stream(stream.number)
        pending = [*([stream.flying] if stream.flying else []), *stream.waiting]
        stream.waiting.clear()
        for part in pending:
            self._drop(part.ticket, reason, now)
        self._unpin(stream.version)
        self._tell_stream(stream, change, "" if change == "closed" else reason, now)
        return True

    def _watch(self, stream: LiveStream, due: int, kind: str) -> None:
        heapq.heappush(self._dues, (due, stream.number, kind))
        self._crew.ring_at(self._dues[0][0])

    def tick(self) -> None:
        """Do what is due now: drops, runs that were put off, streams that expire. The timer calls this."""
        with self.lock:
            now = self.clock()
            self._crew.ticked()
            while self._dues and self._dues[0][0] <= now:
                _, number, kind = heapq.heappop(self._dues)
                stream = self._streams.get(number)
                if stream is not None and kind == SLOW:
                    self._end_if_slow(stream, now)
                elif stream is not None:
                    self._end_if_idle(stream, now)
            if self._dues:
                self._crew.ring_at(self._dues[0][0])
            self._dispatch(now, None)
        self._after()

    def _end_if_slow(self, stream: LiveStream, now: int) -> None:
        if stream.full_since is not None:
            if now - stream.full_since >= SLOW_READER_NS:
                self._end_stream(stream, "slow", SLOW, now)
            else:
                self._watch(stream, stream.full_since + SLOW_READER_NS, SLOW)

    def _end_if_idle(self, stream: LiveStream, now: int) -> None:
        assert stream.options.idle_ns is not None
        since = now if stream.flying is not None or stream.waiting else stream.last
        if now - since >= stream.options.idle_ns:
            self._end_stream(stream, "expired", IDLE, now)
        else:
            self._watch(stream, since + stream.options.idle_ns, IDLE)

    # Models

    def add(self, version: Version, threads: int, measured: Mapping[tuple[str, str], int]) -> None:
        """Take in a version.

        Args:
            version: ready to run.
            threads: of one run.
            measured: nanoseconds on this machine by graph and bucket, beside what its cost table says.
        """
        with self.lock:
            for name, runner in version.runners.items():
                alone = runner.batching_fault() is not None
                known = version.bundle.costs.get(name, {})
                for key, table in costs_of_graph(version.name, name, runner.graph, known, threads, alone).items():
                    self._costs.add(key, table)
                for artifact in runner.graph.artifacts:
                    cost = measured.get((name, bucket_name(artifact.sizes)))
                    if cost is not None:
                        key = key_of(version.name, name, runner.graph, artifact.sizes, alone)
                        self._costs.observe(key, artifact.sizes.get(str(runner.graph.batch_axis), 1), cost)
            self._tell_model(version, "loaded")
        self._after()

    def retire(self, version: Version, change: ModelChange) -> None:
        """Close a version as soon as nothing runs, is queued or is pinned to it."""
        with self.lock:
            if not version.retired:
                version.retired = True
                self._tell_model(version, change)
                if not version.pins:
                    self._to_close.append(version)
        self._after()

    def unload(self, version: Version) -> None:
        """End what a version has open and queued, wait for what runs, and close it."""
        with self.lock:
            now = self.clock()
            for stream in [each for each in self._streams.values() if each.version is version]:
                self._end_stream(stream, "closed", MODEL_CLOSED, now)
            for ticket in list(self._tickets.values()):
                if any(part.version is version for part in ticket.parts):
                    self._drop(ticket, MODEL_CLOSED, now)
        self.retire(version, "unloaded")
        version.gone.wait()

    # The whole

    def balance(self) -> Balance:
        """The books."""
        with self.lock:
            return self.ledger.balance()

    def health(self) -> Health:
        """Whether runs end, or there is nothing to do."""
        with self.lock:
            now = self.clock()
            reason = ""
            for batch in self._flying:
                took = now - batch.decided
                if took > max(STUCK_NS, STUCK_RATIO * batch.run.expected_ns):
                    reason = f"a run of {batch.run.key.graph!r} takes {took / 1e9:.1f} s"
            if self._failures >= FAILURES:
                reason = f"the last {self._failures} runs failed: {self._last_fault}"
            return Health(
                not reason,
                reason,
                self._queued,
                len(self._flying),
                len(self._streams),
                bool(self._gate),
                self.news.fault,
            )

    def resize(self, lanes: int) -> None:
        """Let more or fewer runs be in flight at once; what runs goes on."""
        with self.lock:
            self._scheduler.resize(lanes)
            taken = {batch.lane for batch in self._flying}
            self._lanes = [lane for lane in range(lanes) if lane not in taken][::-1]
            self._most_lanes = lanes
            self._dispatch(self.clock(), None)
        self._after()

    def drain(self, limit_s: float) -> DrainReport:
        """Take no new work, and wait until all that was admitted has ended; drop what has not within the limit."""
        started = time.monotonic()
        with self.lock:
            self._gate = "draining"
            before = len(self._tickets)
            self._quiet = quiet = threading.Event()
            if not self._tickets:
                quiet.set()
        quiet.wait(limit_s)
        with self.lock:
            left = list(self._tickets.values())
            for ticket in left:
                self._drop(ticket, "drained", self.clock())
        self._after()
        return DrainReport(before - len(left), tuple(ticket.number for ticket in left), time.monotonic() - started)

    def stop(self) -> None:
        """End the threads; every version is closed."""
        self._crew.stop()

    def _after(self) -> None:
        """What is done outside of the lock: wake who waits, close what is no longer needed, tell observers."""
        if self._bells or self._to_close:
            with self.lock:
                bells, self._bells = self._bells, []
                versions, self._to_close = self._to_close, []
                for version in versions:
                    self._scheduler.forget(version.name)
                    self._costs.remove_model(version.name)
            for ring in bells:
                ring()
            for version in versions:
                version.close()
        self.news.spread()

    def _request(
        self, ticket: Ticket[Any], version: Version, parts: Sequence[Part], stream: LiveStream | None, now: int
    ) -> Request:
        task = parts[0].task if parts else None
        sequence = None if stream is None else _next_chunk(stream)
        return Request(
            ticket.number,
            version.name,
            parts[0].runner.name if parts else "",
            ticket.service,
            sum(part.task.rows for part in parts),
            None if stream is None else stream.number,
            sequence,
            now,
            task.soft if task else now,
            task.hard if task else None,
            sum(part.task.worth for part in parts),
        )

    def _tell_stream(self, stream: LiveStream, change: StreamChange, reason: str, now: int) -> None:
        if self.news.wanted:
            self.news.note("stream_changed", stream.version.name, stream.number, change, reason, now)

    def _tell_model(self, version: Version, change: ModelChange) -> None:
        if self.news.wanted:
            self.news.note("model_changed", version.name, change, self.clock())


def _next_chunk(stream: LiveStream) -> int:
    return stream.done + len(stream.waiting) + (stream.flying is not None)


def _part_of(task: Task) -> Part:
    assert isinstance(task.payload, Part)
    return task.payload


def _overloaded(where: str, reason: str) -> Overloaded:
    return Overloaded(
        f"{where}: expected a runtime with room, got one without: {reason}; try again later, or use another runtime",
        reason,
    )
