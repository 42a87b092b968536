"""Serves the requests of one runtime: admits requests and streams, and answers questions about all of it.

    request.py          the records that all of these share: a request, its parts, its stream, its version
    request_tracker.py  requests that are alive: queued, answered, ended, and what an end takes along
    live_streams.py     open streams: their states, the chunk in flight, their ends
    runs.py             lanes and runs: decided, executed, settled
    versions.py         loaded bundles, closed when nothing needs them any more
    health.py           whether all of it works, and why not

A caller that waits for its answer runs it itself when a lane is free, and while it waits it takes whatever run is
decided; `worker_pool.py` has the threads. One lock guards all of this; graphs run, and observers hear, outside of it.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.pipeline import Pipeline, Runnable
from runtime_lite.calls.state import StreamState, copy_of_state
from runtime_lite.scheduling.clock import Clock
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.task import Key, ServiceClass
from runtime_lite.serving.deadlines import Deadlines
from runtime_lite.serving.events import EventBus, ModelChange, Observer
from runtime_lite.serving.exits import tell_of_exit
from runtime_lite.serving.forks import tell_of_forks
from runtime_lite.serving.health import DrainReport, Health
from runtime_lite.serving.live_streams import LiveStreams, Start
from runtime_lite.serving.pipeline_run import PipelineRun
from runtime_lite.serving.refusals import (
    CLOSE_S,
    EXITING,
    FORKED,
    LATE,
    MODEL_CLOSED,
    RetiredError,
    no_thread,
    overloaded,
    still_busy,
)
from runtime_lite.serving.request import (
    LiveRequest,
    LiveStream,
    Part,
    StreamOptions,
    Version,
    as_submitted,
    make_part,
)
from runtime_lite.serving.request_tracker import RequestCounts, RequestTracker
from runtime_lite.serving.rule import Rule
from runtime_lite.serving.runs import Batch, Runs
from runtime_lite.serving.shield import Window, close_window, shielded
from runtime_lite.serving.versions import Versions
from runtime_lite.serving.worker_pool import Worker, WorkerPool


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
        scheduler: Rule,
        costs: CostTable,
        clock: Clock = time.monotonic_ns,
        observers: Sequence[Observer] = (),
    ) -> None:
        """Start with nothing to do and no thread."""
        self.lock = threading.Lock()
        self.clock = clock
        self._bus = bus = EventBus(observers)
        self._workers: WorkerPool[Batch] = WorkerPool(
            lambda batch, worker: self._runs.execute(batch, worker), self.tick, clock, self.lock
        )
        self._versions = Versions(scheduler, costs, bus)
        self._tracker = RequestTracker(scheduler, self._versions, bus, self._workers.dismiss)
        self._streams = LiveStreams(max_streams, scheduler, self._tracker, self._versions, bus, self._workers.wake_at)
        self._runs = Runs(
            lanes, scheduler, costs, self._workers, self._tracker, self._streams, bus, clock, self.lock, self._after
        )
        self._scheduler, self._costs = scheduler, costs
        self._deadlines = Deadlines(self._tracker.requests)
        self._gate = ""
        self._threads = 1
        tell_of_forks(self)
        tell_of_exit(self)

    # Requests

    def parts_of(
        self,
        request: LiveRequest[Any],
        index: int,
        version: Version,
        runner: Runnable,
        feeds: Sequence[Feed],
        service: ServiceClass,
        now: int,
        hard: int | None,
        live: LiveStream | None = None,
    ) -> list[Part]:
        """Return the parts of an item that may be queued at once; those behind them come later, from its run.

        Args:
            request: the request.
            index: which of its items.
            version: what runs it.
            runner: one graph, or a pipeline, which takes one feed.
            feeds: checked, that run together.
            service: class of the request.
            now: the time.
            hard: the deadline that the caller gave, if any.
            live: its stream, or None.
        """
        if not isinstance(runner, Pipeline):
            return [make_part(request, index, version, runner, feeds, service, now, hard, live)]
        parts = {
            name: make_part(request, index, version, graph, [runner.feed_of(feeds[0], name)], service, now, hard, live)
            for name, graph in runner.runners.items()
        }
        return PipelineRun(runner, parts, live is not None, self._cost).ready()

    def _cost(self, key: Key, rows: int) -> int:
        """Nanoseconds that a run of rows of a key should take; 0 for a version that is gone, which admits nothing."""
        with self.lock:
            return self._costs.of(key).bucket_for(rows)[1] if self._costs.knows(key) else 0

    @shielded
    def call(self, request: LiveRequest[Any], version: Version, parts: Sequence[Part]) -> None:
        """Serve a request whose caller waits: when this returns, its request has ended.

        Raises:
            BadInput: the model or the stream is closed.
            Overloaded: it is refused.
        """
        me: Worker[Batch] = Worker(request.done)
        batch = self._enter(request, version, parts, me)
        try:
            while batch is not None or request.outcome is None or me.work is not None:  # handed over, then ended
                if batch is None:
                    self._after()
                    limit = self._workers.unwatched()
                    batch = me.sleep(limit)
                    if limit is not None:
                        self.tick()
                else:
                    batch = self._runs.execute(batch, me)
        except BaseException:
            close_window()
            self._leave(request, me)
            raise
        finally:
            self._after()

    @shielded
    def submit(self, request: LiveRequest[Any], version: Version, parts: Sequence[Part]) -> None:
        """Queue a request; workers serve it.

        Raises:
            BadInput: the model or the stream is closed.
            Overloaded: it is refused.
        """
        try:
            self._enter(request, version, parts, None)
        finally:
            self._after()

    @property
    def has_queue(self) -> bool:
        """Whether something waits; a look from outside of the lock."""
        return self._tracker.queued > 0

    @shielded
    def turn_away(self, request: LiveRequest[Any], part: Part) -> None:
        """Refuse a request of one part that could not be answered in time, before its values are looked at.

        What passes is to be submitted all the same: it may be refused yet, for this or another reason.

        Raises:
            Overloaded: it is refused.
        """
        with self.lock:
            refusal = None
            if not (self._gate or part.version.retired):
                refusal = self._scheduler.refusal(part, part.arrival)
            if refusal is not None:
                self._count(request, part.version, [part], part.arrival)
                self._tracker.drop(request, refusal, part.arrival)
        if refusal is not None:
            self._after()
            raise overloaded(request.where, refusal)

    def _enter(
        self, request: LiveRequest[Any], version: Version, parts: Sequence[Part], me: Worker[Batch] | None
    ) -> Batch | None:
        """Admit and queue a request; return what its caller is to run, which sleeps otherwise."""
        with self.lock:
            now = self.clock()
            if me is None:
                self._ready(request.where, timer=True, worker=True)
            request.worker = me
            self._admit(request, version, parts, now)
            request.parts = list(parts)
            stream = parts[0].live if parts else None
            if stream is not None:
                stream.last = now
                stream.requests += 1
                stream.waiting.extend(parts)
                stream.sent, stream.is_short = stream.next_chunk(), False
                self._streams.advance(stream, now)
            elif not parts:
                self._tracker.end(request, "done", "", None, now)
            else:
                for part in parts:
                    if request.outcome is None:
                        self._tracker.queue(part, now)
            if self._deadlines.due:
                self._workers.wake_at(self._deadlines.next)
            if request.outcome == "dropped":
                self._tracker.told(request)
                raise overloaded(request.where, request.reason)
            batch = self._runs.dispatch(now, me)
            if me is not None and batch is None:
                self._workers.rest(me)
            return batch

    def _ready(self, where: str, timer: bool, worker: bool) -> None:
        """Refuse what there is no thread for, before it is taken.

        Raises:
            ExecutorFailed: the system gives no more.
        """
        try:
            self._workers.ready(timer, worker)
        except RuntimeError as error:
            raise no_thread(where, error) from error

    def _admit(self, request: LiveRequest[Any], version: Version, parts: Sequence[Part], now: int) -> None:
        stream = parts[0].live if parts else None
        if stream is not None:
            self._streams.check_chunk(stream, request)
        if version.retired and parts and stream is None:  # what asks for nothing needs no version
            raise RetiredError
        self._count(request, version, parts, now)
        if request.hard is not None:
            self._deadlines.add(request)
        refusal = self._gate
        if stream is not None and stream.requests >= stream.options.credits:
            refusal = "credits"
        if refusal:
            self._tracker.drop(request, refusal, now)
            raise overloaded(request.where, refusal)

    def _count(self, request: LiveRequest[Any], version: Version, parts: Sequence[Part], now: int) -> None:
        """A request came in: from here on it is alive."""
        self._tracker.enter(request)
        if self._bus.wanted:
            request.told = as_submitted(request, version, parts, now)
            self._bus.note("submitted", request.told)

    @shielded
    def cancel(self, request: LiveRequest[Any]) -> bool:
        """Take a request back; whether it was alive."""
        with self.lock:
            if request.outcome is not None:
                return False
            now = self.clock()
            is_last = self._tracker.is_last(request)
            self._tracker.end(request, "cancelled", "by its caller", None, now)
            if is_last:
                self._tracker.told(request)
            self._runs.dispatch(now, None)
        self._after()
        return True

    def _leave(self, request: LiveRequest[Any], me: Worker[Batch]) -> None:
        """A caller was interrupted: its request is taken back, and what it was handed goes to another."""
        with self.lock:
            now = self.clock()
            batch = self._workers.leave(me)
            if request.outcome is None:
                self._tracker.end(request, "cancelled", "interrupted", None, now)
            self._tracker.told(request)
            if batch is not None:
                self._workers.hand_over(batch, None)
            self._runs.dispatch(now, None)

    @shielded
    def response_taken(self, request: LiveRequest[Any]) -> None:
        """A reader made room in its ring: its stream goes on."""
        with self.lock:
            now = self.clock()
            if not self._streams.resume(request, now):
                return
            self._runs.dispatch(now, None)
        self._after()

    @shielded
    def loss_told(self, request: LiveRequest[Any]) -> None:
        """The caller of a chunk that was lost has been told: his next one takes its place."""
        with self.lock:
            self._tracker.told(request)

    def note_fault(self, call: str, error: Exception) -> None:
        """What was called for its caller has raised: his affair, and nobody's request."""
        self._bus.blame(call, error)

    # Streams

    @shielded
    def open_stream(self, version: Version, runner: Runnable, rows: int, options: StreamOptions) -> LiveStream:
        """Open a stream, from the initial states.

        Args:
            version: what it is pinned to.
            runner: of its graph or graphs.
            rows: of every chunk.
            options: what the caller says about it.

        Raises:
            Overloaded: no slot is free, the streams would take too much of the device, or it takes no work.
        """
        begin = Start(runner.initial_state(rows), 0)
        with self.lock:
            now = self.clock()
            self._ready(f"{runner.name}.open_stream", options.idle_ns is not None, worker=False)
            self._streams.sweep(now)
            stream = self._streams.open(version, runner, rows, options, begin, False, self._gate, now)
        self._after()
        return stream

    @shielded
    def fork_stream(self, stream: LiveStream, where: str) -> LiveStream:
        """Open a stream that goes on from what another one carries, in its version.

        All of it is one step: between a look at the one and the start of the other, the version could be closed.

        Raises:
            BadInput: it has ended, or a chunk is on its way.
            Overloaded: as for `open_stream`.
        """
        with self.lock:
            now = self.clock()
            self._streams.sweep(now)
            state, done = self._streams.at_rest(stream, where)
            begin = Start(copy_of_state(state), done)
            twin = self._streams.open(
                stream.version, stream.runner, stream.rows, stream.options, begin, True, self._gate, now
            )
        self._after()
        return twin

    @shielded
    def close_stream(self, stream: LiveStream) -> bool:
        """End a stream; whether it was open. What it has not answered is dropped."""
        with self.lock:
            was_open = self._streams.end(stream, "closed", "closed", self.clock())
        self._after()
        return was_open

    def watch_holder(self, stream: LiveStream, holder: object) -> None:
        """Close a stream that nobody holds any more: with the next call, when nothing of it is on its way."""
        self._streams.watch_holder(stream, holder)

    def state_of(self, stream: LiveStream) -> StreamState:
        """What a stream carries; nothing once it has ended."""
        with self.lock:
            state = self._streams.state(stream)
            return StreamState(stream.rows, {}, {}) if state is None else state

    @shielded
    def exchange(self, stream: LiveStream, where: str, change: Callable[[Start], Start]) -> None:
        """Look at what a stream at rest carries, and let it carry on from what `change` returns.

        Raises:
            BadInput: it has ended, or a chunk is on its way.
        """
        with self.lock:
            self._streams.exchange(stream, where, change, self.clock())

    def check_stream(self, stream: LiveStream, where: str) -> None:
        """Refuse a stream that has ended.

        Raises:
            BadInput: it has.
        """
        with self.lock:
            self._streams.check(stream, where)

    # Models

    @shielded
    def add(self, version: Version, threads: int, measured: Mapping[tuple[str, str], int]) -> None:
        """Take in a version.

        Args:
            version: ready to run.
            threads: of one run.
            measured: nanoseconds on this machine by graph and bucket, beside what its cost table says.
        """
        with self.lock:
            self._threads = max(self._threads, threads)
            self._versions.add(version, threads, measured, self.clock())
        self._after()

    @shielded
    def retire(self, version: Version, change: ModelChange) -> None:
        """Close a version as soon as nothing runs, is queued or is pinned to it."""
        with self.lock:
            self._versions.retire(version, change, self.clock())
        self._after()

    @shielded
    def unload(self, where: str, versions: Sequence[Version], limit_s: float) -> None:
        """End what versions have open and queued, wait for what runs, and close them.

        Raises:
            ExecutorFailed: a run does not end within the limit. Its version is closed when it does.
        """
        hanging = self._unload(versions, time.monotonic() + limit_s)
        if hanging:
            raise still_busy(where, limit_s, hanging)

    def _unload(self, versions: Sequence[Version], until: float) -> list[str]:
        """Unload versions; return the names of those that runs still need at some time."""
        for version in versions:
            with self.lock:
                now = self.clock()
                self._streams.end_of_version(version, now)
                for request in list(self._tracker.requests.values()):
                    if any(part.version is version for part in request.parts):
                        self._tracker.drop(request, MODEL_CLOSED, now)
            self.retire(version, "unloaded")
        with Window():
            return [each.name for each in versions if not each.gone.wait(max(until - time.monotonic(), 0.0))]

    # The whole

    def request_counts(self) -> RequestCounts:
        """How many requests came in, are live and have ended."""
        with self.lock:
            return self._tracker.counts()

    @shielded
    def health(self) -> Health:
        """Whether runs end, or there is nothing to do."""
        self._after()
        with self.lock:
            reason = self._runs.fault(self.clock())
            return Health(
                not reason,
                reason,
                self._tracker.queued,
                self._runs.flying,
                self._streams.count,
                bool(self._gate),
                self._bus.fault,
            )

    @shielded
    def resize(self, lanes: int) -> None:
        """Let more or fewer runs be in flight at once; what runs goes on."""
        with self.lock:
            self._runs.resize(lanes)
            self._runs.dispatch(self.clock(), None)
        self._after()

    @shielded
    def drain(self, limit_s: float) -> DrainReport:
        """Take no new work, and wait until all that was admitted has ended; drop what has not within the limit."""
        started = time.monotonic()
        with self.lock:
            self._gate = "draining"
            before = len(self._tracker.requests)
            quiet = self._tracker.quiet()
        with Window():
            quiet.wait(limit_s)
        with self.lock:
            left = list(self._tracker.requests.values())
            for request in left:
                self._tracker.drop(request, "drained", self.clock())
        self._after()
        return DrainReport(before - len(left), tuple(request.number for request in left), time.monotonic() - started)

    def before_fork(self) -> None:
        """Before the process is forked, and before the lock is taken for it: let observers hear what they are told."""
        self._bus.pause()

    def behind_fork(self) -> None:
        """Called in the process that was forked, without the lock: go on telling observers."""
        self._bus.resume()

    def in_fork(self) -> None:
        """Go on in a fork of the process, with threads of its own; what was asked for is answered in the parent alone.

        If runs were in flight, locks of what runs them may be held for ever, and threads within a run are not here
        either: nothing more is taken then.
        """
        if self._tracker.requests or self._runs.flying or self._threads > 1:
            self._gate = FORKED
        self._workers.forget()
        self._bus.forget()
        self._versions.forget(self._runs.versions)
        now = self.clock()
        for request in list(self._tracker.requests.values()):
            request.wakers = []  # those who wait are in the parent
            self._tracker.drop(request, FORKED, now)
        self._runs.forget(now)
        self._streams.forget()

    def tick(self) -> None:
        """Do what is due now: drops, runs that were put off, streams that expire. The timer calls this."""
        with self.lock:
            now = self.clock()
            self._workers.ticked()
            self._streams.expire(now)
            self._runs.dispatch(now, None)
            late = self._deadlines.passed(now)
            for request in late:
                self._tracker.drop(request, LATE, now)
            if late:
                self._runs.dispatch(now, None)
            self._workers.wake_at(self._deadlines.next)
        self._after()

    @shielded
    def close(self, where: str, versions: Sequence[Version], limit_s: float) -> None:
        """Unload what is left, and end the threads.

        Raises:
            ExecutorFailed: a run, or what an observer does with it, does not end within the limit.
        """
        until = time.monotonic() + limit_s
        try:
            hanging = self._unload(versions, until)
        finally:  # whatever ends the wait, the threads end with their work
            close_window()
            self._workers.stop()
        with Window():
            hanging += self._workers.left(until)
        if hanging:
            raise still_busy(where, limit_s, hanging)

    def at_exit(self) -> None:
        """At the end of the process: take no more, drop what waits, and let what runs end before the interpreter does.

        A thread that comes back from a run into an interpreter that is gone takes the process down with it.
        """
        until = time.monotonic() + CLOSE_S
        with self.lock:
            self._gate = EXITING
            rested = self._runs.rested()
            now = self.clock()
            for request in list(self._tracker.requests.values()):
                self._tracker.drop(request, EXITING, now)
        self._after()
        rested.wait(CLOSE_S)
        self._workers.stop()
        self._workers.left(until)

    def _after(self) -> None:
        """What is done outside of the lock: wake who waits, close what is no longer needed, tell observers."""
        if self._tracker.wakers or self._versions.unneeded or self._streams.unheld:
            with self.lock:
                self._streams.sweep(self.clock())
                versions = self._versions.leaving()
            try:
                self._tracker.wake()
            finally:
                for version in versions:
                    version.close()
        if self._bus.waiting:
            self._bus.spread()
