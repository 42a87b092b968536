"""Executes the runs that the scheduler decides, and gives every request in a run its answer or its error.

A lane executes one run at a time, with rows of several requests. If a run fails, its parts run again in smaller groups
to find the one that fails; this takes at most `2 log2(parts)` more runs if there is one, and the other parts get their
normal answers. It is possible because states are stored only after a successful run. A chunk that has run advances its
stream, even if its caller no longer wants the answer. If a chunk did not run, the chunks behind it are dropped.
`execute` is called without the server's lock and takes it; all other methods are called under the lock.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BadInput, BundleRefused, EngineAbsent
from runtime_lite.format.manifest import Tensor, static_shape
from runtime_lite.scheduling.clock import Clock
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.decision import Run
from runtime_lite.serving.events import EventBus, Execution
from runtime_lite.serving.health import fault_of_runs
from runtime_lite.serving.live_streams import LiveStreams
from runtime_lite.serving.refusals import LATE
from runtime_lite.serving.request import Answered, LiveRequest, Part, Version
from runtime_lite.serving.request_tracker import RequestTracker
from runtime_lite.serving.rule import Rule
from runtime_lite.serving.shield import Torn, Window, close_window, raised_by_handler
from runtime_lite.serving.worker_pool import Worker, WorkerPool

FAULTS_OF_ALL = (BundleRefused, EngineAbsent)
"""Failures that would occur with any other rows in the run, too."""


@dataclass(eq=False, slots=True)
class Batch:
    """A decided run and its lane.

    Attributes:
        run: the scheduler's decision.
        parts: the parts whose rows it has.
        lane: number of the lane, from 0.
        number: counted per runtime, from 1.
        decided: time of the decision.
    """

    run: Run
    parts: Sequence[Part]
    lane: int
    number: int
    decided: int


class Runs:
    """The runs of one server.

    Args:
        lanes: number of runs that may be in flight at once.
        scheduler: decides which parts run.
        costs: the scheduler's cost table.
        workers: the threads that execute runs.
        tracker: tracks the requests of the parts.
        streams: the streams whose chunks run.
        bus: passes on events of runs.
        clock: returns monotonic nanoseconds.
        lock: the server's lock.
        after: called without the lock when something may have ended.
    """

    def __init__(
        self,
        lanes: int,
        scheduler: Rule,
        costs: CostTable,
        workers: WorkerPool[Batch],
        tracker: RequestTracker,
        streams: LiveStreams,
        bus: EventBus,
        clock: Clock,
        lock: threading.Lock,
        after: Callable[[], object],
    ) -> None:
        """Start with nothing in flight."""
        self._scheduler, self._costs, self._workers, self._tracker = scheduler, costs, workers, tracker
        self._streams, self._bus, self._clock, self._lock, self._after = streams, bus, clock, lock, after
        self._lanes, self._most_lanes = list(range(lanes))[::-1], lanes
        self._flying: dict[Batch, None] = {}
        self._decided = self._failures = 0
        self._last_fault = ""
        self._undecided_since: int | None = None
        self._rested: threading.Event | None = None

    @property
    def flying(self) -> int:
        """Number of runs in flight."""
        return len(self._flying)

    def rested(self) -> threading.Event:
        """Return an event that is set as soon as no run is in flight."""
        self._rested = threading.Event()
        if not self._flying:
            self._rested.set()
        return self._rested

    def fault(self, now: int) -> str:
        """Return what is wrong with the runs; empty if they end and succeed."""
        flying = [batch.run for batch in self._flying]
        undecided_since = self._undecided_since if self._tracker.queued and len(flying) < self._most_lanes else None
        return fault_of_runs(flying, undecided_since, self._failures, self._last_fault, now)

    def resize(self, lanes: int) -> None:
        """Change the number of runs that may be in flight at once; current runs continue."""
        self._scheduler.resize(lanes)
        taken = {batch.lane for batch in self._flying}
        self._lanes = [lane for lane in range(lanes) if lane not in taken][::-1]
        self._most_lanes = lanes
        self._undecided_since = None

    def dispatch(self, now: int, me: Worker[Batch] | None) -> Batch | None:
        """Give the scheduler's decisions to threads; the first run goes to the worker `me`, if any, and is returned."""
        mine = None
        while self._tracker.queued:
            if self._undecided_since is None:
                self._undecided_since = now
            run, ended, wake = self._scheduler.decide(now)
            dropped = cast("Sequence[tuple[Part, str]]", ended)
            decided = cast("Sequence[Part]", () if run is None else run.tasks)
            for part in (*[part for part, _ in dropped], *decided):  # first: the end of a request unqueues what it has
                self._tracker.unqueue(part)
            for part, reason in dropped:
                self._tracker.let_go(part, reason, now)
            if run is None:
                if wake is not None:
                    self._workers.wake_at(wake)
                break
            self._undecided_since = None
            self._decided += 1
            batch = Batch(run, decided, self._lanes.pop(), self._decided, now)
            self._flying[batch] = None
            if me is not None and mine is None:
                mine = batch
            else:
                wished = (part.request.worker for part in decided)
                self._workers.hand_over(batch, next((worker for worker in wished if worker is not None), None))
        return mine

    def execute(self, batch: Batch, worker: Worker[Batch]) -> Batch | None:
        """Execute a batch, settle it, and return the worker's next batch; None lets the worker sleep."""
        parts = batch.parts
        torn: BaseException | None = None
        try:
            answers = run_parts(parts, lambda some: self._attempt(batch, some, retry=len(some) < len(parts)))
        except BaseException as error:  # an interrupt of the thread that runs it, not of those whose rows are in it
            close_window()
            self._abandon(batch, worker)
            if not isinstance(error, Torn):
                raise
            torn = error.error
        if torn is not None:  # here, where it is not raised beside what holds it: no circle
            try:
                raise torn
            finally:
                del torn
        failed = []
        for index, (part, answer) in enumerate(answers):
            if part.request.is_continued:
                answer = _prepared(part, answer)
                answers[index] = part, answer
            if isinstance(answer, Exception):
                failed.append(answer)
        with self._lock:
            now = self._clock()
            self._note_failures(batch, failed, len(answers))
            self._land(batch, now, failed=bool(failed))
            for part, answer in answers:
                self._settle(part, answer, now)
            leaves = worker.done is not None and worker.done()
            following = self.dispatch(now, None if leaves else worker)
            if following is None and not leaves:
                self._workers.rest(worker)
        try:
            self._after()
        except BaseException:  # an interrupt: what the thread was to run next goes to another
            if following is not None:
                with self._lock:
                    self._workers.hand_over(following, None)
            raise
        return following

    def _attempt(self, batch: Batch, parts: Sequence[Part], retry: bool) -> list[Answered]:
        """Run some parts of a batch, and pass on an event of it."""
        run, runner = batch.run, parts[0].runner
        axis = runner.graph.batch_axis
        sizes = dict(run.key.sizes)
        if axis is not None:
            sizes[axis] = self._rows_for(run, parts) if retry else run.rows
        states = [self._streams.state_for(part) for part in parts]
        began, fault, before = self._clock(), None, runner.crossed if self._bus.wanted else None
        try:
            with Window():
                return step_parts(parts, states, sizes)
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"
            if (raised := raised_by_handler(error)) is None:
                raise
            try:
                raise Torn(raised) from None
            finally:
                del raised  # its traceback holds this frame: no circle
        finally:
            if self._bus.wanted:
                used, places = places_used(parts, sizes)
                numbers = tuple(part.request.number for part in parts)
                ended, after = self._clock(), runner.crossed
                told = Execution(
                    batch.number,
                    batch.lane,
                    run.key.model,
                    run.key.graph,
                    sizes,
                    sum(part.rows for part in parts),
                    used,
                    places,
                    numbers,
                    batch.decided,
                    began,
                    ended,
                    run.expected_ns,
                    fault,
                    retry,
                    None if before is None or after is None else after.since(before),
                )
                self._bus.note("executed", told)

    def _rows_for(self, run: Run, parts: Sequence[Part]) -> int:
        """Return the smallest row bucket that holds some parts; needs no lock, as it reads constants only."""
        rows = sum(part.rows for part in parts)
        return next(size for size in self._costs.row_buckets(run.key) if size >= rows)

    def _land(self, batch: Batch, now: int, failed: bool) -> None:
        """Free the lane of a batch and report its time to the scheduler, except for the first run of a bucket.

        That run may have opened a session, so its time is not a cost.
        """
        del self._flying[batch]
        self._undecided_since = None
        if self._rested is not None and not self._flying:
            self._rested.set()
        if batch.lane < self._most_lanes:
            self._lanes.append(batch.lane)
        bucket, warm = (batch.run.key, batch.run.rows), batch.parts[0].version.warm
        is_cold = bucket not in warm
        if is_cold and not failed:
            warm.add(bucket)
        self._scheduler.finished(batch.run, now, failed or is_cold)

    def _settle(self, part: Part, answer: Answered, now: int) -> None:
        """Store the new state of a part's stream, and end its request or add a response."""
        request, stream = part.request, part.live
        if stream is not None:
            stream.flying, stream.last = None, now
        if part.pipeline_run is not None and not isinstance(answer, Exception):
            whole = part.pipeline_run.done(part, answer[0][0], answer[1][0])
            if whole is None:
                self._tracker.follow(part, now)
                self._tracker.release(part)  # behind what it hands on to: the version stays pinned
                return
            answer = whole
        self._tracker.release(part)
        if isinstance(answer, Exception):
            if request.outcome is None:
                self._tracker.end(request, "failed", type(answer).__name__, answer, now)
            elif stream is not None:
                self._tracker.note_loss(request, stream)
            if stream is not None:
                self._tracker.lose(stream, 0, now)
            return
        outputs, states = answer
        if stream is not None:
            self._streams.commit(stream, states[0])
        if request.outcome is None:
            if request.hard is not None and now > request.hard:
                self._tracker.drop(request, LATE, now)
            else:
                self._tracker.put(request, part.index, outputs, now)
        if stream is not None:
            if request.is_continued and request.outcome is None:
                self._follow(request, now)
            self._streams.advance(stream, now)

    def _follow(self, request: LiveRequest[Any], now: int) -> None:
        """Queue the parts that follow from the answers of a request; one that cannot be made ends it."""
        try:
            ready = request.following()
        except Exception as error:  # noqa: BLE001 - it ends this request, and no other of the run
            self._tracker.end(request, "failed", type(error).__name__, error, now)
            return
        for following in ready:
            self._streams.extend(following, now)

    def _abandon(self, batch: Batch, worker: Worker[Batch]) -> None:
        """After an interrupt, queue the parts of a run again, except those that the interrupted thread asked for."""
        with self._lock:
            now = self._clock()
            self._land(batch, now, failed=True)
            for part in batch.parts:
                request, stream, again = part.request, part.live, replace(part)
                self._tracker.release(part)
                if request.worker is worker or request.outcome is not None:
                    if stream is not None:
                        stream.flying = None
                    if request.outcome is None:
                        self._tracker.end(request, "cancelled", "interrupted", None, now)
                    elif stream is not None:
                        self._tracker.note_loss(request, stream)
                    if stream is not None:
                        self._tracker.lose(stream, 0, now)
                else:
                    request.parts[request.parts.index(part)] = again  # another task: queues remember the one before
                    if stream is not None:
                        stream.flying = again
                    self._tracker.queue(again, now)
            self.dispatch(now, None)

    @property
    def versions(self) -> set[Version]:
        """The versions with runs in flight."""
        return {part.version for batch in self._flying for part in batch.parts}

    def forget(self, now: int) -> None:
        """In a forked child, after all requests have ended: free the lanes; the runs continue in the parent."""
        for batch in list(self._flying):
            self._land(batch, now, failed=True)
            for part in batch.parts:
                self._tracker.release(part)
                if part.live is not None:
                    part.live.flying = None

    def _note_failures(self, batch: Batch, failed: Sequence[Exception], parts: int) -> None:
        faults = [error for error in failed if not isinstance(error, BadInput)]
        if len(faults) < parts:
            self._failures = 0
        else:
            self._failures += 1
            self._last_fault = f"{batch.run.key.model}: {type(faults[0]).__name__}: {faults[0]}"


def _prepared(part: Part, answer: Answered) -> Answered:
    """Return the answer of a part once what follows from it is computed, or the error of that.

    The request of the part is continued.
    """
    request = part.request
    if isinstance(answer, Exception) or request.outcome is not None:
        return answer
    try:
        request.prepare(part, answer[0][0])
    except Exception as error:  # noqa: BLE001 - it ends this request, and no other of the run
        return error
    return answer


def run_parts(parts: Sequence[Part], run: Callable[[Sequence[Part]], list[Answered]]) -> list[tuple[Part, Answered]]:
    """Run parts together; if that fails, halve them until each failing part has run alone.

    Args:
        parts: the parts of one run.
        run: runs some parts and returns one answer per part, or raises.
    """
    try:
        return list(zip(parts, run(parts), strict=True))
    except FAULTS_OF_ALL as error:
        return [(part, error) for part in parts]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the bad part's, and reaches its caller
        return [(parts[0], error)] if len(parts) == 1 else _halve(parts, run)


def _halve(parts: Sequence[Part], run: Callable[[Sequence[Part]], list[Answered]]) -> list[tuple[Part, Answered]]:
    """Run both halves of parts that failed together; if the first succeeds, the second is halved without a run."""
    first, second = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    answers = run_parts(first, run)
    first_is_well = not any(isinstance(answer, Exception) for _, answer in answers)
    if first_is_well and len(second) > 1:
        return answers + _halve(second, run)
    return answers + run_parts(second, run)


def step_parts(parts: Sequence[Part], states: Sequence[StreamState | None], sizes: Mapping[str, int]) -> list[Answered]:
    """Run parts together in one bucket and return one answer per part.

    Args:
        parts: parts of one graph.
        states: the state of each part's stream; None for the initial states.
        sizes: bucket of every axis.
    """
    runner = parts[0].runner
    feeds = [feed for part in parts for feed in part.feeds]
    carried = [
        runner.initial_state(feed.rows) if state is None else state
        for part, state in zip(parts, states, strict=True)
        for feed in part.feeds
    ]
    steps = iter(runner.step_streams(feeds, carried, sizes))
    answers: list[Answered] = []
    for part in parts:
        pairs = [next(steps) for _ in part.feeds]
        answers.append(([outputs for outputs, _ in pairs], [state for _, state in pairs]))
    return answers


def places_used(parts: Sequence[Part], sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the number of input entries that hold callers' values, and of all entries, of inputs of role data."""
    tensors: list[Tensor] = [tensor for tensor in parts[0].runner.graph.inputs if tensor.role == "data"]
    used = sum(feed.arrays[tensor.name].size for part in parts for feed in part.feeds for tensor in tensors)
    return used, sum(math.prod(static_shape(tensor.shape, sizes)) for tensor in tensors)
