"""One decided run: the rows of several requests together, and the search for the bad item when it fails.

States are committed by the server and only after a run that succeeded, so every part of a run that failed may run
again. A bad item costs at most `2 log2(parts)` runs more; its neighbours have the answers that they would have had.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.pipeline import Pipeline, Runnable
from runtime_lite.calls.plan import smallest_bucket
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BundleRefused, EngineAbsent
from runtime_lite.format.manifest import Tensor, static_shape
from runtime_lite.format.reader import Bundle
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import key_of
from runtime_lite.scheduling.task import Key, ServiceClass, Task
from runtime_lite.serving.slots import Hold
from runtime_lite.serving.ticket import Outputs, Ticket

Answer = tuple[list[Outputs], list[StreamState]] | Exception
"""Outputs of every feed of a part and the states after them; or why there are none."""

FAULTS_OF_ALL = (BundleRefused, EngineAbsent)
"""Failures that no other company of rows can cure."""


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
        if known not in self._keys:
            self._keys[known] = self._key(runner, smallest_bucket(runner.graph, feeds))
        return self._keys[known]

    def _key(self, runner: GraphRunner, sizes: Mapping[str, int]) -> Key:
        alone = runner.batching_fault() is not None
        return key_of(self.name, runner.name, runner.graph, sizes, alone)

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


def next_chunk(stream: LiveStream) -> int:
    """The number of the chunk that a stream expects."""
    return stream.done + len(stream.waiting) + (stream.flying is not None)


@dataclass(eq=False, slots=True)
class Part:
    """What one task of the scheduler stands for: feeds of one request that run together.

    Attributes:
        ticket: the request.
        index: which of its parts.
        version: what runs it.
        runner: of its graph.
        feeds: checked; each starts from the initial states, but a chunk from its stream's.
        stream: its stream, or None.
        task: as the scheduler sees it.
        queued: whether the scheduler has it and it does not run.
        pipeline_run: of the pipeline's item that it is a part of; None for what is done with one run.
    """

    ticket: Ticket[Any]
    index: int
    version: Version
    runner: GraphRunner
    feeds: Sequence[Feed]
    stream: LiveStream | None
    task: Task
    queued: bool = False
    pipeline_run: "Continuation | None" = None


class Continuation(Protocol):
    """What follows a part of a pipeline (`pipeline_run.py`)."""

    @property
    def name(self) -> str:
        """The name of the graph that runs."""
        ...

    def state_for(self, part: Part, carried: StreamState) -> StreamState:
        """What a part of a stream starts from, of what the stream carries."""
        ...

    def done(self, part: Part, outputs: Outputs, state: StreamState) -> Answer | None:
        """Hand on what a part gave; return what it has all come to, if that was the last one."""
        ...

    def ready(self) -> list[Part]:
        """Take out the parts that may be queued now."""
        ...


def make_part(
    ticket: Ticket[Any],
    index: int,
    version: Version,
    runner: GraphRunner,
    feeds: Sequence[Feed],
    service: ServiceClass,
    now: int,
    hard: int | None,
    stream: LiveStream | None = None,
) -> Part:
    """Return a part with its task; `hard` is the deadline that the caller gave, if any."""
    task = make_task(version, runner, feeds, service, now, hard, None if stream is None else stream.number)
    part = Part(ticket, index, version, runner, feeds, stream, task)
    ticket.soft, ticket.hard = task.soft, task.hard  # of the whole: what a part of wired graphs has is less
    task.payload = part
    return part


def make_task(
    version: Version,
    runner: GraphRunner,
    feeds: Sequence[Feed],
    service: ServiceClass,
    now: int,
    hard: int | None,
    stream: int | None = None,
) -> Task:
    """Return the task of feeds that run together; `hard` is the deadline that the caller gave, if any."""
    key = version.key(runner, feeds)
    rows = feeds[0].rows if len(feeds) == 1 else sum(feed.rows for feed in feeds)
    if hard is None and service.hard_ms is not None:
        hard = now + int(service.hard_ms * NS_PER_MS)
    soft = now + int(service.soft_ms * NS_PER_MS)
    worth = float(rows)
    if key.padded:  # what is long is worth more
        worth = float(sum(feed.rows * sum(feed.sizes[axis] for axis in key.padded) for feed in feeds))
    return Task(key, service, now, soft, hard, rows, worth, stream)


def run_parts(parts: Sequence[Part], run: Callable[[Sequence[Part]], list[Answer]]) -> list[tuple[Part, Answer]]:
    """Run parts together; where that fails, halve them until the bad ones are alone.

    Args:
        parts: of one run.
        run: runs some of them; one answer each, or raises.
    """
    try:
        return list(zip(parts, run(parts), strict=True))
    except FAULTS_OF_ALL as error:
        return [(part, error) for part in parts]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the bad part's, and reaches its caller
        return [(parts[0], error)] if len(parts) == 1 else _halve(parts, run)


def _halve(parts: Sequence[Part], run: Callable[[Sequence[Part]], list[Answer]]) -> list[tuple[Part, Answer]]:
    """Run parts that failed together; when one half is well, the other holds the bad item and is halved at once."""
    first, second = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    answers = run_parts(first, run)
    first_is_well = not any(isinstance(answer, Exception) for _, answer in answers)
    if first_is_well and len(second) > 1:
        return answers + _halve(second, run)
    return answers + run_parts(second, run)


def step_parts(parts: Sequence[Part], states: Sequence[StreamState | None], sizes: Mapping[str, int]) -> list[Answer]:
    """Run parts in one bucket.

    Args:
        parts: of one graph.
        states: of the stream of every part; None for what starts from the initial states.
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
    answers: list[Answer] = []
    for part in parts:
        pairs = [next(steps) for _ in part.feeds]
        answers.append(([outputs for outputs, _ in pairs], [state for _, state in pairs]))
    return answers


def places_used(parts: Sequence[Part], sizes: Mapping[str, int]) -> tuple[int, int]:
    """How many places of the inputs of role data hold a caller's values, and how many there are."""
    tensors: list[Tensor] = [tensor for tensor in parts[0].runner.graph.inputs if tensor.role == "data"]
    used = sum(feed.arrays[tensor.name].size for part in parts for feed in part.feeds for tensor in tensors)
    return used, sum(math.prod(static_shape(tensor.shape, sizes)) for tensor in tensors)
