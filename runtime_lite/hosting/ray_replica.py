"""Implements a replica of a Ray Serve application: a runtime with the streams that are placed on it.

    ray_replica.py      a replica; which replica a call goes to; how many replicas there are
    ray_gateway.py      what clients call; it knows where each stream lives, and brings lost ones back
    ray_application.py  both together as an application, and the folder that is written

A chunk that reaches a replica without its stream is refused there, whatever router chose the replica. Routing to the
replica that has the stream (`pin`) is therefore a matter of speed, not of right answers.

Source: Ray Serve 2.60, `ray.serve.request_router`, `AutoscalingConfig`, `record_routing_stats`.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from runtime_lite.errors import ExecutorFailed, Overloaded, StreamLost
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.named_streams import MovedStream, NamedStreams, Place
from runtime_lite.runtime import Runtime
from runtime_lite.serving.request import Outputs

ELSEWHERE = "elsewhere"
"""Reason of `StreamLost` where a call has reached another replica than the one that it was meant for."""

UP_AT, DOWN_AT = 0.7, 0.5
"""Part of all places for streams above which there is another replica, and below which, counted without one replica,
one leaves. The gap keeps the number of replicas steady."""

MOST_ROUTED = 1024
"""Calls for which a router looks for a replica at one time."""

MOVE_S = 10.0
"""Seconds that the chunks of a stream have to end before it is moved."""


@dataclass(frozen=True)
class RayOptions:
    """The options of an application.

    Attributes:
        graph: name of a graph with states; None for the only one, or those that are wired.
        threads: threads of one run.
        workers: runs of a replica in flight at once.
        max_streams: streams of a replica.
        idle_s: seconds without a chunk after which a stream ends.
        snapshot_every: chunks between two snapshots, from which a stream of a lost replica goes on; 0 for none.
        answer_s: seconds after which a replica that does not answer counts as lost.
        min_replicas: least number of replicas.
        max_replicas: largest number of replicas.
        leave_after_s: seconds with too few streams after which a replica leaves.
        cpus: CPUs that Ray reserves for a replica.
    """

    graph: str | None = None
    threads: int = 1
    workers: int = 1
    max_streams: int = 64
    idle_s: float = 60.0
    snapshot_every: int = 0
    answer_s: float = 10.0
    min_replicas: int = 1
    max_replicas: int = 4
    leave_after_s: float = 60.0
    cpus: float = 1.0


class Placed(NamedTuple):
    """Where a stream lives.

    Attributes:
        replica: the replica.
        generation: its generation there.
        number: number of its next chunk; -1 if the replica has no place for it.
        rows: rows of every chunk.
    """

    replica: str
    generation: int
    number: int
    rows: int = 1


class StreamsReplica:
    """A replica: a runtime with one bundle, and the streams that are placed here.

    Args:
        bundle: bundle directory or `.tar` file, at the same path on every machine.
        options: options of the application.
        name: name of this replica, which calls name as `pin`.
    """

    def __init__(self, bundle: str, options: RayOptions, name: str) -> None:
        """Open the bundle and run every bucket once.

        Raises:
            RuntimeLiteError: the bundle is refused, or an option is out of its range.
        """
        self._name, self._options = name, options
        self._runtime = Runtime(options.threads, workers=options.workers, max_streams=options.max_streams)
        model = self._runtime.load(bundle, warm_up=True)
        self._streams = NamedStreams(model, options.graph, options.idle_s)

    async def place(self, stream: str, generation: int, content: bytes, rows: int, avoid: Sequence[str] = ()) -> Placed:
        """Open a stream that continues from bytes, or from its initial state without any.

        Args:
            stream: name of the stream.
            generation: its new generation.
            content: bytes of the stream; may be empty.
            rows: rows of every chunk.
            avoid: replicas that it should not go to; read by the router.

        Raises:
            BadInput: the bytes are not of this stream and bundle, or there is no bucket of so many rows.
        """
        number = 0
        try:
            if content:
                number = self._streams.restore(stream, generation, content, rows)
            else:
                self._streams.open(stream, generation, rows)
        except Overloaded:
            number = -1
        return Placed(self._name, generation, number, rows)

    async def push(
        self,
        stream: str,
        generation: int,
        number: int,
        feeds: Mapping[str, Array],
        with_snapshot: bool = False,
        pin: str = "",
    ) -> tuple[Outputs, bytes]:
        """Run the next chunk of a stream; return its outputs, and the bytes of the stream behind it if asked for.

        Raises:
            StreamLost: the stream is not here, or in another generation; or `pin` names another replica.
        """
        self._check_pin(pin)
        outputs = await self._streams.submit(Place(stream, number=number, generation=generation), feeds)
        return outputs, self._streams.snapshot(stream, generation) if with_snapshot else b""

    async def forget(self, left: Sequence[tuple[str, int]], pin: str = "") -> None:
        """End streams, each given as its name and generation; what is not here any more is left out."""
        self._check_pin(pin)
        for stream, generation in left:
            with contextlib.suppress(StreamLost):
                self._streams.close(stream, generation)

    async def where(self, stream: str) -> Placed | None:
        """Return where a stream lives, if it is here."""
        found = self._streams.where(stream)
        return None if found is None else Placed(self._name, found.generation, found.sequence, found.rows)

    async def move_all(self, hand_over: "HandOver") -> int:
        """End all streams, each behind its chunks, and hand their bytes over; return how many there were."""
        leaving, count = self._streams.drain(MOVE_S), 0
        while (moved := await asyncio.to_thread(next, leaving, None)) is not None:
            await hand_over(moved)
            count += 1
        return count

    def loads(self) -> dict[str, float]:
        """Return the number of streams and of places for them, for the router and the number of replicas."""
        return {"streams": float(self._streams.count), "places": float(self._options.max_streams)}

    def check_health(self) -> None:
        """Refuse to count as healthy while runs hang or fail.

        Raises:
            ExecutorFailed: the runtime is not healthy.
        """
        health = self._runtime.health()
        if not health.healthy:
            raise ExecutorFailed(
                f"{self._name}: expected runs that end, got none: {health.reason}; look at its device", "hang"
            )

    def _check_pin(self, pin: str) -> None:
        if pin and pin != self._name:
            raise StreamLost(
                f"{self._name}: expected a call for this replica, got one for {pin}; ask the gateway again", ELSEWHERE
            )


class HandOver(Protocol):
    """Takes a stream that leaves a replica."""

    async def __call__(self, moved: MovedStream) -> None: ...


class Candidate(Protocol):
    """A replica as Ray's router sees it."""

    @property
    def replica_id(self) -> Any: ...

    @property
    def routing_stats(self) -> Mapping[str, Any]: ...


def candidates_for(
    replicas: Sequence[Candidate], arguments: Mapping[str, Any], draw: random.Random
) -> Sequence[Candidate]:
    """Return the replicas that a call may go to, the best one first.

    A call with a `pin` goes to that replica. Once that is gone it may go to any, which refuses it. A call that places a
    stream goes to the one of two random replicas that has fewer streams: unlike the least loaded of all, that stays
    even while the numbers are some seconds old.

    Args:
        replicas: the replicas that run.
        arguments: the call's keyword arguments.
        draw: random numbers.
    """
    if pin := arguments.get("pin"):
        return [each for each in replicas if each.replica_id.unique_id == pin] or replicas[:1]
    avoided = arguments.get("avoid", ())
    others = [each for each in replicas if each.replica_id.unique_id not in avoided] or list(replicas)
    some = draw.sample(others, min(len(others), 2))
    return sorted(some, key=lambda each: float(each.routing_stats.get("streams", 0.0)))


def replicas_for(loads: Sequence[Mapping[str, float]], now: int) -> int:
    """Return how many replicas there should be.

    Args:
        loads: streams and places of every replica that has reported.
        now: number of replicas.
    """
    streams, places = sum(load["streams"] for load in loads), max((load["places"] for load in loads), default=1.0)
    wanted = math.ceil(streams / (UP_AT * places))
    if wanted > now:
        return wanted
    return now - 1 if now > 1 and streams < DOWN_AT * places * (now - 1) else now


def __getattr__(name: str) -> Any:
    """Make what Ray finds by its import path, and what needs Ray to be defined, when it is asked for."""
    if name == "PinnedRouter":
        return _pinned_router()
    raise AttributeError(name)


def _pinned_router() -> type:
    from ray.serve.request_router import RequestRouter  # only where Ray is installed

    class PinnedRouter(RequestRouter):  # type: ignore[misc, unused-ignore]
        """Sends a call to the replica of `candidates_for`."""

        @property
        def max_num_routing_tasks(self) -> int:
            """A call waits for its own replica; those for a mute one must not keep the others from being sent."""
            return MOST_ROUTED

        async def choose_replicas(self, candidate_replicas: Any, pending_request: Any = None) -> Any:
            if pending_request is None:
                return [candidate_replicas]
            # else the router asks again without a pause, and its loop does nothing else
            pending_request.routing_context.should_backoff = True
            arguments = pending_request.kwargs
            return [[each] for each in candidates_for(candidate_replicas, arguments, random.Random())]

    return PinnedRouter


def scale(context: Any) -> tuple[int, dict[str, Any]]:
    """Return the number of replicas, as Ray's autoscaling asks for it, by `replicas_for`."""
    metrics = context.aggregated_metrics or {}
    by_replica = [metrics.get(name, {}) for name in ("streams", "places")]
    loads = [
        {"streams": float(streams), "places": float(by_replica[1].get(replica, 1.0))}
        for replica, streams in by_replica[0].items()
    ]
    now = context.target_num_replicas
    wanted = replicas_for(loads, now) if len(loads) >= context.current_num_replicas else now
    return min(max(wanted, context.capacity_adjusted_min_replicas), context.capacity_adjusted_max_replicas), {}
