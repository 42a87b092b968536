"""Defines the records that the server's modules share: requests with their parts, streams and loaded versions.

A request is alive from its admission to its end. Each of its parts is a task of the scheduler: it waits in its stream
behind other chunks, then in the queues, then it runs. A request ends once:

    done        the last of its parts was answered
    dropped     the runtime dropped it: it was refused, too late, or behind a chunk that was lost
    cancelled   its caller cancelled it, or was interrupted
    failed      a run of it raised an error

Records are used under the server's lock; the attributes of an ended request do not change any more.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.pipeline import Pipeline, Runnable
from runtime_lite.calls.plan import smallest_bucket
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import Cancelled
from runtime_lite.format.arrays import Array
from runtime_lite.format.reader import Bundle
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import key_of
from runtime_lite.scheduling.task import Key, ServiceClass, Task
from runtime_lite.serving.events import Outcome, Request

Outputs = dict[str, Array]
Answer = TypeVar("Answer")

Answered = tuple[list[Outputs], list[StreamState]] | Exception
"""The outputs and next states of every feed of a part, or the error of its run."""


class Owner(Protocol):
    """The methods of a server that a request calls."""

    lock: threading.Lock

    def cancel(self, request: "LiveRequest[Any]") -> bool:
        """Cancel a request; return whether it had not ended."""
        ...

    def response_taken(self, request: "LiveRequest[Any]") -> None:
        """Record that a caller has read a response, so that there is room for another."""
        ...

    def loss_told(self, request: "LiveRequest[Any]") -> None:
        """Record that the caller has learned that a chunk was lost."""
        ...

    def note_fault(self, call: str, error: Exception) -> None:
        """Record that a callback of the caller has raised an error."""
        ...


class LiveRequest(Generic[Answer]):
    """A request as the server sees it; a `Ticket` is one that its caller can wait for.

    Args:
        owner: the server.
        where: name of the call in messages.
        service: name of its service class.
        answer: converts the outputs of all parts to the result.
        parts: number of parts.

    Attributes:
        number: counted per runtime, from 1; 0 before it is admitted.
        outcome: how it ended; None while it is alive.
        reason: why it ended, a short constant text; empty for `done`.
        error: the error that its caller gets in place of an answer.
        parts: the parts that wait, are queued or run; empty once it has ended.
        outputs: for every part a list of the outputs of its feeds.
        missing: number of parts without an answer.
        wakers: functions to call when it has ended, and when it has a response and holds back, as its caller must read.
        readers: functions to call when it has ended or has another response.
        worker: the caller's thread, if it waits within the server and executes runs in the meantime; else None.
        told: the record for observers; None without observers.
        sequence: the caller's number of its chunk, if any.
        soft: time by which the whole answer should be out; None until it has parts.
        hard: time from which the answer is worthless; None for never.
        is_known: whether its caller has learned that it has no answer.
        loss: if its chunk was lost and the caller does not know of it yet, the stream and the number of the loss.
        is_continued: whether parts follow from the answers of parts, as in generation: `prepare` and `following` are
            called then.
    """

    number = 0
    outcome: Outcome | None = None
    reason = ""
    error: BaseException | None = None
    worker: Any = None
    told: Request | None = None
    sequence: int | None = None
    soft: int | None = None
    hard: int | None = None
    is_known = False
    loss: "tuple[LiveStream, int] | None" = None
    is_continued = False

    def __init__(
        self,
        owner: Owner,
        where: str,
        service: str,
        answer: Callable[[list[list[Outputs]]], Answer],
        parts: int = 1,
    ) -> None:
        """Start without parts."""
        self.where = where
        self.service = service
        self.parts: list[Part] = []
        self.outputs: list[list[Outputs]] = [[]] * parts
        self.missing = parts
        self.wakers: list[Callable[[], object]] = []
        self.readers: list[Callable[[], object]] = []
        self._owner = owner
        self._answer = answer

    def put(self, index: int, outputs: list[Outputs]) -> bool:
        """Store the outputs of a part, one per feed; called by the server. Return whether it was the last part."""
        self.outputs[index] = outputs
        self.missing -= 1
        return self.missing == 0

    def is_response(self, index: int) -> bool:
        """Return whether the answer of a part that was `put` last is one that its caller reads as it comes."""
        return False

    def prepare(self, part: "Part", outputs: Outputs) -> None:
        """Compute what follows from the answer of a part; called without the lock by the thread that has run it."""

    def following(self) -> "Sequence[Part]":
        """Return the parts that can be queued now, each once; called by the server under its lock behind `put`."""
        return ()

    def waits_for_reader(self, part: "Part") -> bool:
        """Return whether the caller must read a response before a part runs."""
        return self.is_full

    def parked_until(self, part: "Part", now: int) -> int | None:
        """Return the time until which a part need not be queued, as its caller has enough; None for now."""
        return None

    def end(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        """End the request; called by the server, once."""
        self.outcome, self.reason, self.error = outcome, reason, error

    @property
    def is_full(self) -> bool:
        """Whether its caller must read a response before the next one is made."""
        return False

    @property
    def holds_back(self) -> bool:
        """Whether parts may wait for the caller to read."""
        return self.is_full

    def done(self) -> bool:
        """Return whether the request has ended, with any outcome."""
        return self.outcome is not None

    def answer(self) -> Answer:
        """Return the answer of a request that has ended.

        Raises:
            Cancelled, Dropped, RuntimeLiteError: the request ended without an answer.
        """
        if self.outcome != "done" or self.loss is not None:
            self.check()
        return self._answer(self.outputs)

    def check(self) -> None:
        """Raise the error of a request that has ended without an answer."""
        if self.outcome not in (None, "done"):
            self.is_known = True  # first: a run that fails just now looks at it
        if self.loss is not None:
            self._owner.loss_told(self)
        if self.error is not None:
            raise self.error
        if self.outcome == "cancelled":
            raise Cancelled(f"{self.where}: expected a request in progress, got one that was cancelled; submit another")


@dataclass(eq=False)
class Version:
    """One loaded bundle, which is closed when nothing uses it any more.

    Attributes:
        name: name in keys and events, unique among the versions of the server that are not closed.
        bundle: the bundle.
        runners: runners by graph name.
        pipeline: its wired graphs together; None without wires.
        pins: number of parts that are queued or run, and of open streams.
        retired: whether it is to be closed when the last pin is removed.
        gone: event that is set once its sessions are closed.
        warm: keys and row buckets that have run, and so have an open session.
        is_left: in a forked child, whether a thread of the parent was using it during the fork, so that its locks may
            be held for ever.
    """

    name: str
    bundle: Bundle
    runners: Mapping[str, GraphRunner]
    pipeline: Pipeline | None = None
    pins: int = 0
    retired: bool = False
    gone: threading.Event = field(default_factory=threading.Event)
    warm: set[tuple[Key, int]] = field(default_factory=set)
    is_left: bool = False
    _keys: dict[tuple[str | int, ...], Key] = field(default_factory=dict)

    def key(self, runner: GraphRunner, feeds: Sequence[Feed]) -> Key:
        """Return the key of feeds that run together; for a single feed, computed once per combination of sizes."""
        if len(feeds) > 1:
            return self.key_of(runner, smallest_bucket(runner.graph, feeds))
        known: tuple[str | int, ...] = (runner.name, *feeds[0].sizes.values())
        key = self._keys.get(known)
        if key is None:
            key = self._keys[known] = self.key_of(runner, smallest_bucket(runner.graph, feeds))
        return key

    def key_of(self, runner: GraphRunner, sizes: Mapping[str, int]) -> Key:
        """Return the key of runs in a bucket."""
        alone = runner.batching_fault() is not None
        return key_of(self.name, runner.name, runner.graph, sizes, alone)

    def unpin(self, unneeded: "list[Version]") -> None:
        """Remove a pin; with the last one, a retired version is added to `unneeded`."""
        self.pins -= 1
        if self.retired and not self.pins:
            unneeded.append(self)

    def chunk_key(self, runner: GraphRunner) -> Key:
        """Return the key of a stream's whole chunks: the largest bucket of axes with lengths, the first of others."""
        axes = runner.graph.axes
        first = runner.graph.artifacts[0].sizes
        return self.key_of(
            runner,
            {name: first[name] if axis.length_input is None else axis.buckets[-1] for name, axis in axes.items()},
        )

    def close(self) -> None:
        """Close the sessions and the bundle when nothing runs any more; one with `is_left` is not closed."""
        if not self.is_left:
            for runner in self.runners.values():
                runner.close()
            self.bundle.close()
        self.gone.set()


class Hold(NamedTuple):
    """The right to use one slot for states, until it is freed.

    Attributes:
        slot: number of the slot.
        generation: how many times the slot had been taken, this time included.
    """

    slot: int
    generation: int


@dataclass(frozen=True)
class StreamOptions:
    """The caller's options of a stream.

    Attributes:
        service: service class of its chunks.
        credits: number of requests that may be alive at once.
        idle_ns: nanoseconds without a chunk after which it expires; None for never.
        period_ns: nanoseconds between two chunks, for admission by utilisation; None if unknown.
    """

    service: ServiceClass
    credits: int
    idle_ns: int | None
    period_ns: int | None


@dataclass(eq=False, slots=True)
class LiveStream:
    """An open stream as the server sees it.

    Attributes:
        number: counted per runtime, from 1.
        version: the version that it pins until it ends.
        runner: runner of its graph or graphs.
        rows: number of rows of every chunk.
        hold: the hold of its slot.
        options: the caller's options.
        last: time of the last submission or answer.
        waiting: chunks behind the one in flight, in order.
        flying: the chunk that is queued at the scheduler or runs.
        done: number of chunks whose run succeeded.
        sent: number of chunks submitted as the caller counts them, including lost ones that the caller does not know
            of.
        is_short: whether chunks were lost and the caller does not know of it.
        losses: number of times that chunks were lost.
        first_lost: number of the first request of the last loss.
        full_since: time since which the caller has no room for another response; None while there is room.
        requests: number of its requests that have not ended.
        ended: the reason why it takes no more chunks; empty while it is open.
        holder: weak reference to the caller's object.
    """

    number: int
    version: Version
    runner: Runnable
    rows: int
    hold: Hold
    options: StreamOptions
    last: int
    waiting: "deque[Part]" = field(default_factory=deque)
    flying: "Part | None" = None
    done: int = 0
    sent: int = 0
    is_short: bool = False
    losses: int = 0
    first_lost: int = 0
    full_since: int | None = None
    requests: int = 0
    ended: str = ""
    holder: Any = None

    def next_chunk(self) -> int:
        """Return the number of the next chunk that it expects."""
        return self.done + len(self.waiting) + (self.flying is not None)


@dataclass(eq=False, slots=True, kw_only=True)
class Part(Task):
    """Feeds of one request that run together; the scheduler queues parts.

    Attributes:
        request: the request that it belongs to; deleted when it is released.
        index: index of the part in the request.
        version: the version that runs it.
        runner: runner of its graph.
        feeds: checked feeds; each starts from the initial states, a chunk from the state of its stream. Empty once the
            part is released.
        live: the stream, or None.
        queued: whether it is queued and does not run.
        pipeline_run: the pipeline run that it is a part of; None for a request of one graph.
    """

    request: LiveRequest[Any]
    index: int
    version: Version
    runner: GraphRunner
    feeds: Sequence[Feed]
    live: LiveStream | None
    queued: bool = False
    pipeline_run: "Continuation | None" = None

    def release(self) -> None:
        """Drop the references to request and arrays; queues may refer to the part for some time yet."""
        self.feeds = ()
        del self.request


class Continuation(Protocol):
    """The work that follows a part of a pipeline (`pipeline_run.py`)."""

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        ...

    def state_for(self, part: Part, carried: StreamState) -> StreamState:
        """Return the state that a part of a stream starts from, out of the state of the whole stream."""
        ...

    def done(self, part: Part, outputs: Outputs, state: StreamState) -> Answered | None:
        """Pass on the outputs of a part; return the answer of the whole item after the last part, else None."""
        ...

    def ready(self) -> list[Part]:
        """Remove and return the parts that can be queued now."""
        ...


def make_part(
    request: LiveRequest[Any],
    index: int,
    version: Version,
    runner: GraphRunner,
    feeds: Sequence[Feed],
    service: ServiceClass,
    now: int,
    hard: int | None,
    live: LiveStream | None = None,
) -> Part:
    """Return a part of a request; `hard` is the caller's deadline, if any."""
    key = version.key(runner, feeds)
    rows = feeds[0].rows if len(feeds) == 1 else sum(feed.rows for feed in feeds)
    if hard is None and service.hard_ms is not None:
        hard = now + int(service.hard_ms * NS_PER_MS)
    soft = now + int(service.soft_ms * NS_PER_MS)
    worth = float(rows)
    if key.padded:  # what is long is worth more
        worth = float(sum(feed.rows * sum(feed.sizes[axis] for axis in key.padded) for feed in feeds))
    request.soft, request.hard = soft, hard  # of the whole: what a part of wired graphs has is less
    return Part(
        key,
        service,
        now,
        soft,
        hard,
        rows,
        worth,
        None if live is None else live.number,
        request=request,
        index=index,
        version=version,
        runner=runner,
        feeds=feeds,
        live=live,
    )


def streams_of(request: LiveRequest[Any]) -> list[LiveStream]:
    """Return the streams that parts of a request belong to, each once."""
    found: list[LiveStream] = []
    for part in request.parts:
        if part.live is not None and part.live not in found:
            found.append(part.live)
    return found


def as_submitted(request: LiveRequest[Any], version: Version, parts: Sequence[Part], now: int) -> Request:
    """Return the record for observers of a request that comes in, with its first parts."""
    graph, live = "", None
    if parts:
        graph = parts[0].runner.name if parts[0].pipeline_run is None else parts[0].pipeline_run.name
        live = parts[0].live
    return Request(
        request.number,
        version.name,
        graph,
        request.service,
        sum({part.index: part.rows for part in parts}.values()),
        None if live is None else live.number,
        None if live is None else live.next_chunk(),
        now,
        now if request.soft is None else request.soft,
        request.hard,
        sum(part.worth for part in parts),
    )
