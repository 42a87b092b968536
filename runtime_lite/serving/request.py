"""Records that all of the server shares: a request and its parts, and the stream and the version that these belong to.

A request is alive from its admission to its end. Each of its parts is a task of the scheduler, whose `state` says where
it is: it waits in its stream behind other chunks, then in the queues, then it runs. A request ends once:

    done        the last of its parts was answered
    dropped     the runtime let go of it: it was refused, came too late, or was behind a chunk that was lost
    cancelled   its caller took it back, or was interrupted
    failed      a run of it raised

Records are used under the server's lock; what a caller reads of a request that has ended changes no more.
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
"""Outputs of every feed of a part and the states after them; or why there are none."""


class Owner(Protocol):
    """What a request asks of the server that has it."""

    lock: threading.Lock

    def cancel(self, request: "LiveRequest[Any]") -> bool:
        """Take a request back; whether it was alive."""
        ...

    def response_taken(self, request: "LiveRequest[Any]") -> None:
        """Note that a reader has made room for a response."""
        ...

    def loss_told(self, request: "LiveRequest[Any]") -> None:
        """The caller learns that a chunk was lost."""
        ...

    def note_fault(self, call: str, error: Exception) -> None:
        """What the caller wanted to be called has raised."""
        ...


class LiveRequest(Generic[Answer]):
    """A request as the server sees it; a `Ticket` is one that its caller may wait for.

    Args:
        owner: the server.
        where: names the call in messages.
        service: name of its service class.
        answer: makes the result of the outputs of all parts.
        parts: number of parts.

    Attributes:
        number: counted per runtime, from 1; 0 before it is admitted.
        outcome: how it ended; None while it is alive.
        reason: why, a short constant text; empty for what is done.
        error: what its caller gets in place of an answer.
        parts: those that were made and wait, are queued or run; none once it has ended.
        outputs: of every part, a list with those of every feed.
        missing: parts without an answer.
        wakers: called when it has ended.
        worker: the caller that waits within the server and runs what is decided meanwhile; None for another caller.
        told: what observers hear of it; None without any.
        sequence: the number that its caller gives its chunk.
        soft: when a good answer should be out, all of it; None until it has parts.
        hard: when its answer is worthless, all of it; None for never.
        is_known: whether its caller has learned that it has no answer.
        loss: the stream whose chunk it was, and the number of the loss, while its caller does not know of it.
        has_responses: whether its caller reads the answer of every part as it comes.
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
    has_responses = False

    def __init__(
        self,
        owner: Owner,
        where: str,
        service: str,
        answer: Callable[[list[list[Outputs]]], Answer],
        parts: int = 1,
    ) -> None:
        """Start alive."""
        self.where = where
        self.service = service
        self.parts: list[Part] = []
        self.outputs: list[list[Outputs]] = [[]] * parts
        self.missing = parts
        self.wakers: list[Callable[[], object]] = []
        self._owner = owner
        self._answer = answer

    def put(self, index: int, outputs: list[Outputs]) -> bool:
        """For the server: keep the outputs of a part, one per feed; whether it was the last."""
        self.outputs[index] = outputs
        self.missing -= 1
        return self.missing == 0

    def end(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        """For the server: end a request that is alive."""
        self.outcome, self.reason, self.error = outcome, reason, error

    @property
    def is_full(self) -> bool:
        """Whether its caller must read a response before the next one is made."""
        return False

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.outcome is not None

    def answer(self) -> Answer:
        """The answer of a request that has ended.

        Raises:
            Cancelled, Dropped, RuntimeLiteError: what it ended with, if that is no answer.
        """
        if self.outcome != "done" or self.loss is not None:
            self.check()
        return self._answer(self.outputs)

    def check(self) -> None:
        """Raise what the request ended with, if that is no answer."""
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
    """One loaded bundle, which is closed when nothing needs it any more.

    Attributes:
        name: for keys and events; no other version of its server that is not gone has it.
        bundle: where it was read from.
        runners: by graph name.
        pipeline: its wired graphs together; None where no wire is.
        pins: parts that are queued or run, and open streams.
        retired: whether it is to be closed with its last pin.
        gone: set once its sessions are.
        warm: keys and row buckets that have run, and so have their session.
        is_left: a thread that is not here was within it as the process was forked, and may hold its locks for ever.
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
        """The key of feeds that run together; found once for each combination of sizes of a single feed."""
        if len(feeds) > 1:
            return self._key(runner, smallest_bucket(runner.graph, feeds))
        known: tuple[str | int, ...] = (runner.name, *feeds[0].sizes.values())
        key = self._keys.get(known)
        if key is None:
            key = self._keys[known] = self._key(runner, smallest_bucket(runner.graph, feeds))
        return key

    def _key(self, runner: GraphRunner, sizes: Mapping[str, int]) -> Key:
        alone = runner.batching_fault() is not None
        return key_of(self.name, runner.name, runner.graph, sizes, alone)

    def unpin(self, unneeded: "list[Version]") -> None:
        """Somebody needs it no more; with the last one, a retired one comes to those that nobody needs."""
        self.pins -= 1
        if self.retired and not self.pins:
            unneeded.append(self)

    def chunk_key(self, runner: GraphRunner) -> Key:
        """The key of the whole chunks of a stream: the largest bucket where chunks may be shorter, else the first."""
        axes = runner.graph.axes
        first = runner.graph.artifacts[0].sizes
        return self._key(
            runner,
            {name: first[name] if axis.length_input is None else axis.buckets[-1] for name, axis in axes.items()},
        )

    def close(self) -> None:
        """Drop the sessions and close the bundle; nothing runs any more. What a fork left goes with the process."""
        if not self.is_left:
            for runner in self.runners.values():
                runner.close()
            self.bundle.close()
        self.gone.set()


class Hold(NamedTuple):
    """The right to one slot for states, until it is freed.

    Attributes:
        slot: its number.
        generation: how often it had been taken, this time included.
    """

    slot: int
    generation: int


@dataclass(frozen=True)
class StreamOptions:
    """What a caller says about a stream.

    Attributes:
        service: class of its chunks.
        credits: requests that may be alive at once.
        idle_ns: without a chunk for so long it expires; None for never.
        period_ns: from chunk to chunk, for admission by utilisation; None where chunks come as they come.
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
        version: what it is pinned to until it ends.
        runner: of its graph or graphs.
        rows: of every chunk.
        hold: its right to a slot.
        options: what its caller says about it.
        last: when something happened last.
        waiting: chunks behind the one in flight, in order.
        flying: the chunk that is queued at the scheduler or runs.
        done: chunks whose run succeeded: the number of the next one.
        sent: chunks that its caller has submitted, as he counts: beyond the next one where some were lost and he has
            not been told.
        is_short: whether that is so.
        losses: how often it came to that.
        first_lost: number of the first request that was lost the last time.
        full_since: when its reader's ring was full; None while it is not.
        requests: requests that are alive.
        ended: why it takes no chunks any more; empty while it does.
        holder: tells when nobody holds it any more.
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
        """The number of the chunk that it expects."""
        return self.done + len(self.waiting) + (self.flying is not None)


@dataclass(eq=False, slots=True, kw_only=True)
class Part(Task):
    """Feeds of one request that run together: what the scheduler queues.

    Attributes:
        request: whose part it is, until it is released.
        index: which of its parts.
        version: what runs it.
        runner: of its graph.
        feeds: checked; each starts from the initial states, but a chunk from its stream's. None once it is released.
        live: its stream, or None.
        queued: whether the scheduler has it and it does not run.
        pipeline_run: of the pipeline's item that it is a part of; None for what is done with one run.
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
        """Let go of request and arrays: it runs no more, and queues may remember it for some time."""
        self.feeds = ()
        del self.request


class Continuation(Protocol):
    """What follows a part of a pipeline (`pipeline_run.py`)."""

    @property
    def name(self) -> str:
        """The name of the graph that runs."""
        ...

    def state_for(self, part: Part, carried: StreamState) -> StreamState:
        """What a part of a stream starts from, of what the stream carries."""
        ...

    def done(self, part: Part, outputs: Outputs, state: StreamState) -> Answered | None:
        """Hand on what a part gave; return what it has all come to, if that was the last one."""
        ...

    def ready(self) -> list[Part]:
        """Take out the parts that may be queued now."""
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
    """Return a part of a request; `hard` is the deadline that the caller gave, if any."""
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


def as_submitted(request: LiveRequest[Any], version: Version, parts: Sequence[Part], now: int) -> Request:
    """What observers are told of a request that comes in, of its first parts."""
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
