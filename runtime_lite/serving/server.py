"""Serves the requests of one runtime: admits requests and streams, and reports on all of them.

    request.py          the records that all of these share: a request, its parts, its stream, its version
    request_tracker.py  requests that have not ended: queueing, answers, ends and their effects
    live_streams.py     open streams: their states, chunks in flight and ends
    runs.py             lanes and runs: decided, executed, settled
    versions.py         loaded bundles, closed when nothing uses them any more
    health.py           whether all of it works, and why not

A caller that waits for its answer executes the run itself if a lane is free, and while it waits it executes other runs;
`worker_pool.py` has the threads. One lock guards all of this; graphs run, and observers are called, without it.
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
        lanes: number of runs that may be in flight at once.
        max_streams: number of streams that may be open at once.
        scheduler: decides which parts run.
        costs: the scheduler's cost table.
        clock: returns monotonic nanoseconds; with another clock than the machine's there is no timer, and its owner
            calls `tick`.
        observers: objects that are notified of events.
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
        """Start without requests and threads."""
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
        """Return the parts of an item that can be queued at once; a pipeline's later parts come from its run.

        Args:
            request: the request.
            index: index of the item in the request.
            version: the version that runs it.
            runner: one graph, or a pipeline, which takes one feed.
            feeds: checked feeds that run together.
            service: service class of the request.
            now: current time.
            hard: the caller's deadline, if any.
            live: the stream, or None.
        """
        if not isinstance(runner, Pipeline):
            return [make_part(request, index, version, runner, feeds, service, now, hard, live)]
        parts = {
            name: make_part(request, index, version, graph, [runner.feed_of(feeds[0], name)], service, now, hard, live)
            for name, graph in runner.runners.items()
        }
        return PipelineRun(runner, parts, live is not None, self._cost).ready()

    def _cost(self, key: Key, rows: int) -> int:
        """Return the expected nanoseconds of a run of some rows of a key; 0 if its version is closed."""
        with self.lock:
            return self.price(key, rows)

    def price(self, key: Key, rows: int) -> int:
        """Return what `_cost` does; called under the lock."""
        return self._costs.of(key).bucket_for(rows)[1] if self._costs.knows(key) else 0

    def streams_of(self, runner: Runnable) -> int:
        """Return the number of open streams of a runner; called under the lock."""
        return self._streams.count_of(runner)

    @shielded
    def call(self, request: LiveRequest[Any], version: Version, parts: Sequence[Part]) -> None:
        """Serve a request whose caller waits; it has ended when this returns.

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
        """Queue a request; workers execute it.

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
        """Whether parts are queued; read without the lock."""
        return self._tracker.queued > 0

    @shielded
    def turn_away(self, request: LiveRequest[Any], part: Part) -> None:
        """Refuse a request of one part that could not be answered in time, before its values are checked.

        A request that is not refused here must still be submitted, and may be refused then.

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
        """Admit and queue a request; return the run that its waiting caller is to execute, if any."""
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
        """Refuse a request for which no thread can be started.

        Raises:
            ExecutorFailed: the system gives no more threads.
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
        """Enter a request among those that have not ended, and pass on an event of it."""
        self._tracker.enter(request)
        if self._bus.wanted:
            request.told = as_submitted(request, version, parts, now)
            self._bus.note("submitted", request.told)

    @shielded
    def cancel(self, request: LiveRequest[Any]) -> bool:
        """Cancel a request; return whether it had not ended."""
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
        """Cancel the request of an interrupted caller, and give the run that it was to execute to another thread."""
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
        """Continue a stream whose caller has read a response."""
        with self.lock:
            now = self.clock()
            if not self._streams.resume(request, now):
                return
            self._runs.dispatch(now, None)
        self._after()

    @shielded
    def loss_told(self, request: LiveRequest[Any]) -> None:
        """Record that the caller of a lost chunk knows of it, so that the next chunk takes its number."""
        with self.lock:
            self._tracker.told(request)

    def note_fault(self, call: str, error: Exception) -> None:
        """Store the error of a caller's callback in the health; it affects no request."""
        self._bus.blame(call, error)

    # Streams

    @shielded
    def open_stream(self, version: Version, runner: Runnable, rows: int, options: StreamOptions) -> LiveStream:
        """Open a stream that starts from the initial states.

        Args:
            version: the version that it pins.
            runner: runner of its graph or graphs.
            rows: number of rows of every chunk.
            options: the caller's options.

        Raises:
            Overloaded: no slot is free, the device is too slow for one more stream, or the server admits no work.
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
        """Open a stream that continues from a copy of another one's state, in the same version.

        Reading the one state and opening the other stream are one step under the lock, because the version could be
        closed in between.

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
        """End a stream and drop its unanswered chunks; return whether it was open."""
        with self.lock:
            was_open = self._streams.end(stream, "closed", "closed", self.clock())
        self._after()
        return was_open

    def watch_holder(self, stream: LiveStream, holder: object) -> None:
        """Close a stream after its caller's object was deleted, at a later call and with no chunk in flight."""
        self._streams.watch_holder(stream, holder)

    def state_of(self, stream: LiveStream) -> StreamState:
        """Return the state of a stream; an empty state once it has ended."""
        with self.lock:
            state = self._streams.state(stream)
            return StreamState(stream.rows, {}, {}) if state is None else state

    @shielded
    def exchange(self, stream: LiveStream, where: str, change: Callable[[Start], Start]) -> None:
        """Call `change` with the state of a stream that has no chunk in flight, and store the state that it returns.

        Raises:
            BadInput: it has ended, or a chunk is on its way.
        """
        with self.lock:
            self._streams.exchange(stream, where, change, self.clock())

    def check_stream(self, stream: LiveStream, where: str) -> None:
        """Refuse a stream that has ended.

        Raises:
            BadInput: it has ended.
        """
        with self.lock:
            self._streams.check(stream, where)

    # Models

    @shielded
    def add(self, version: Version, threads: int, measured: Mapping[tuple[str, str], int]) -> None:
        """Add a version.

        Args:
            version: a version that is ready to run.
            threads: number of threads of one run.
            measured: nanoseconds on this machine by graph and bucket, in addition to the costs in the bundle.
        """
        with self.lock:
            self._threads = max(self._threads, threads)
            self._versions.add(version, threads, measured, self.clock())
        self._after()

    @shielded
    def retire(self, version: Version, change: ModelChange) -> None:
        """Close a version as soon as no part of it is queued or runs, and no stream of it is open."""
        with self.lock:
            self._versions.retire(version, change, self.clock())
        self._after()

    @shielded
    def unload(self, where: str, versions: Sequence[Version], limit_s: float) -> None:
        """End the streams and drop the requests of versions, wait for their runs, and close them.

        Raises:
            ExecutorFailed: a run has not ended within the limit. Its version is closed when the run ends.
        """
        hanging = self._unload(versions, time.monotonic() + limit_s)
        if hanging:
            raise still_busy(where, limit_s, hanging)

    def _unload(self, versions: Sequence[Version], until: float) -> list[str]:
        """Unload versions; return the names of those that runs still use at the time `until`."""
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
        """Return the numbers of requests that came in, have not ended, and have ended."""
        with self.lock:
            return self._tracker.counts()

    @shielded
    def health(self) -> Health:
        """Return the health of the server: whether runs end, or none are queued."""
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
        """Change the number of runs that may be in flight at once; current runs continue."""
        with self.lock:
            self._runs.resize(lanes)
            self._runs.dispatch(self.clock(), None)
        self._after()

    @shielded
    def drain(self, limit_s: float) -> DrainReport:
        """Admit no new work, wait until all admitted requests have ended, and drop the rest after the limit."""
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
        """Called before a fork, without the lock: wait until no observer is being called."""
        self._bus.pause()

    def behind_fork(self) -> None:
        """Called in the parent after a fork, without the lock: continue to pass on events."""
        self._bus.resume()

    def in_fork(self) -> None:
        """Called in a forked child: drop all requests, which only the parent answers, and the parent's threads.

        If runs were in flight or runs have several threads, the server admits no more work in the child: locks of the
        executors may be held for ever, and the threads within runs do not exist there.
        """
        if self._tracker.requests or self._runs.flying or self._threads > 1:
            self._gate = FORKED
        self._workers.forget()
        self._bus.forget()
        self._versions.forget(self._runs.versions)
        now = self.clock()
        for request in list(self._tracker.requests.values()):
            request.wakers.clear()  # those who wait are in the parent
            request.readers.clear()
            self._tracker.drop(request, FORKED, now)
        self._runs.forget(now)
        self._streams.forget()

    def tick(self) -> None:
        """Do what is due: drop late requests, start delayed runs, end expired streams. The timer thread calls this."""
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
        """Unload the remaining versions and end the threads.

        Raises:
            ExecutorFailed: a run, or an observer that is notified of it, has not ended within the limit.
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
        """At the end of the process: admit no work, drop waiting requests, and wait for current runs.

        A thread that returns from a run after the interpreter is finalized would crash the process.
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
        """Do the work that needs no lock: wake waiting threads, close unused versions, call observers."""
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
