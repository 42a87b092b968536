"""Tracks the open streams of a server: their slots for states, their chunks in flight, and their ends.

Slots have generation numbers, so that a slot which is in use again is not written or freed by mistake: a `Hold` of an
older generation is refused. A run that ends after its stream stores no state. If a cancellation, an idle expiry and an
end coincide, one of them frees the slot. Methods are called under the server's lock.
"""

import heapq
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from runtime_lite.calls.blocks import is_in_place_of, leave
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.pipeline import Runnable
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BadInput
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.serving.events import EventBus, StreamChange
from runtime_lite.serving.refusals import IDLE, MODEL_CLOSED, SLOW, RetiredError, overloaded
from runtime_lite.serving.request import Hold, LiveRequest, LiveStream, Part, StreamOptions, Version, streams_of
from runtime_lite.serving.request_tracker import RequestTracker
from runtime_lite.serving.rule import Rule
from runtime_lite.serving.versions import Versions

SLOW_READER_NS = 30_000 * NS_PER_MS
"""Time in nanoseconds after which a stream is ended whose caller reads none of the responses that it has room for."""


PARKED = "parked"
"""A stream whose next part waits until its caller needs it."""


class Start(NamedTuple):
    """The state that a stream continues from.

    Attributes:
        state: the stream's state.
        done: number of chunks that have been run.
    """

    state: StreamState
    done: int


class Slots:
    """The slots for states of one runtime.

    Args:
        most: largest number of streams at one time.
    """

    def __init__(self, most: int) -> None:
        """Start with all slots free; memory for a slot is allocated at its first use."""
        self._most = most
        self._free: list[int] = []
        self._generations: list[int] = []
        self._states: list[StreamState | None] = []

    def take(self, state: StreamState) -> Hold | None:
        """Store a state in a free slot and return a hold of it; None if all slots are in use."""
        if not self._free:
            if len(self._states) == self._most:
                return None
            self._free.append(len(self._states))
            self._generations.append(0)
            self._states.append(None)
        index = self._free.pop()
        self._generations[index] += 1
        self._states[index] = state
        return Hold(index, self._generations[index])

    def state(self, hold: Hold) -> StreamState | None:
        """Return the state in a slot; None if the hold has been freed."""
        return self._states[hold.slot] if self._generations[hold.slot] == hold.generation else None

    def commit(self, hold: Hold, state: StreamState) -> bool:
        """Replace the state in a slot; return whether the hold was still valid."""
        old = self.state(hold)
        if old is None:
            leave([state])
            return False
        self._states[hold.slot] = state
        if not is_in_place_of(state, old):
            leave([old])
        return True

    def free(self, hold: Hold) -> bool:
        """Free a slot; return whether the hold was still valid."""
        old = self.state(hold)
        if old is None:
            return False
        self._states[hold.slot] = None
        leave([old])
        self._free.append(hold.slot)
        return True

    @property
    def taken(self) -> int:
        """Number of slots in use."""
        return len(self._states) - len(self._free)


class _Holder(weakref.ref[object]):
    """A weak reference to the caller's object of a stream.

    Attributes:
        stream: the stream.
    """

    __slots__ = ("stream",)
    stream: LiveStream


class LiveStreams:
    """The streams of one server.

    Args:
        most: number of streams that may be open at once.
        scheduler: admits streams that have a period.
        tracker: tracks the requests of their chunks.
        versions: the versions that streams pin.
        bus: passes on events of streams.
        wake_at: requests a call of `expire` at a time.

    Attributes:
        unheld: references to streams whose callers no longer have them; `sweep` ends those that are open.
    """

    def __init__(
        self,
        most: int,
        scheduler: Rule,
        tracker: RequestTracker,
        versions: Versions,
        bus: EventBus,
        wake_at: Callable[[int], object],
    ) -> None:
        """Start without streams."""
        self._most, self._slots = most, Slots(most)
        self._scheduler, self._tracker, self._versions, self._bus = scheduler, tracker, versions, bus
        self._ring_at = wake_at
        self._open: dict[int, LiveStream] = {}
        self._opened = 0
        self._dues: list[tuple[int, int, str]] = []
        self.unheld: deque[_Holder] = deque()

    # Opening and ending

    def open(
        self,
        version: Version,
        runner: Runnable,
        rows: int,
        options: StreamOptions,
        start: Start,
        restored: bool,
        gate: str,
        now: int,
    ) -> LiveStream:
        """Open a stream, as `Server.open_stream` describes.

        Args:
            version: the version that it pins.
            runner: the runner of its graph or graphs.
            rows: number of rows of every chunk.
            options: the caller's options.
            start: the state that it starts from.
            restored: whether the state is that of another stream; its version may then be retired, as that stream pins
                it.
            gate: the reason why the server admits nothing; empty if it does.
            now: current time.

        Raises:
            RetiredError: the version is retired.
            Overloaded: no slot is free, the device is too slow for one more stream, or the server admits nothing.
        """
        where = f"{runner.name}.open_stream"
        if version.retired and not restored:
            raise RetiredError
        hold = None if gate else self._slots.take(start.state)
        if hold is None:
            raise overloaded(where, gate or f"all {self._most} slots are taken")
        self._opened += 1
        if options.period_ns is not None:
            assert isinstance(runner, GraphRunner)
            key = version.chunk_key(runner)
            refusal = self._scheduler.open_stream(self._opened, key, options.service, options.period_ns)
            if refusal is not None:
                self._slots.free(hold)
                raise overloaded(where, refusal)
        version.pins += 1
        stream = LiveStream(self._opened, version, runner, rows, hold, options, now, done=start.done, sent=start.done)
        self._open[stream.number] = stream
        if options.idle_ns is not None:
            self._watch(stream, now + options.idle_ns, IDLE)
        self._tell(stream, "restored" if restored else "opened", "", now)
        return stream

    def end(self, stream: LiveStream, change: StreamChange, reason: str, now: int) -> bool:
        """End a stream and drop its unanswered chunks; return whether it was open."""
        if stream.ended:
            return False
        stream.ended, stream.holder = reason, None
        del self._open[stream.number]
        self._slots.free(stream.hold)
        self._scheduler.close_stream(stream.number)
        pending = [*([stream.flying] if stream.flying else []), *stream.waiting]
        stream.waiting.clear()
        for part in pending:
            self._tracker.drop(part.request, reason, now)
        stream.version.unpin(self._versions.unneeded)
        self._tell(stream, change, "" if change == "closed" else reason, now)
        return True

    def watch_holder(self, stream: LiveStream, holder: object) -> None:
        """Add a stream to `unheld` as soon as its caller's object is deleted.

        This can happen in any thread at any moment, even under the lock. The callback runs no Python code, because an
        exception of a signal handler would be lost there, and the stream would stay open.
        """
        stream.holder = _Holder(holder, self.unheld.append)
        stream.holder.stream = stream

    def forget(self) -> None:
        """In a forked child, after all requests have ended: forget the chunks that the parent has lost."""
        for stream in self._open.values():
            stream.sent, stream.is_short = stream.next_chunk(), False

    def sweep(self, now: int) -> None:
        """End the streams whose callers no longer have them, once all requests of the stream have ended."""
        for _ in range(len(self.unheld)):
            left = self.unheld.popleft()
            stream = left.stream
            if stream.requests and not stream.ended:
                self.unheld.append(left)
            else:
                self.end(stream, "closed", "closed", now)

    def end_of_version(self, version: Version, now: int) -> None:
        """End all streams of a version that is unloaded."""
        for stream in [each for each in self._open.values() if each.version is version]:
            self.end(stream, "closed", MODEL_CLOSED, now)

    @property
    def count(self) -> int:
        """Number of open streams."""
        return len(self._open)

    def count_of(self, runner: Runnable) -> int:
        """Return the number of open streams of a runner."""
        return sum(stream.runner is runner for stream in self._open.values())

    @property
    def slots_taken(self) -> int:
        """Number of slots that hold a state."""
        return self._slots.taken

    # States

    def state(self, stream: LiveStream) -> StreamState | None:
        """Return the state of a stream; None once it has ended."""
        return self._slots.state(stream.hold)

    def state_for(self, part: Part) -> StreamState | None:
        """Return the state that a part starts from; None, for the initial states, without an open stream."""
        state = None if part.live is None else self._slots.state(part.live.hold)
        return state if state is None or part.pipeline_run is None else part.pipeline_run.state_for(part, state)

    def commit(self, stream: LiveStream, state: StreamState) -> None:
        """Store the new state of a stream after a run; a stream that has ended does not change."""
        if self._slots.commit(stream.hold, state):
            stream.done += 1

    def at_rest(self, stream: LiveStream, where: str) -> Start:
        """Return the state of a stream that has no chunk in flight.

        Raises:
            BadInput: a chunk is in flight, or the stream has ended.
        """
        self.check(stream, where)
        state = self._slots.state(stream.hold)
        if stream.requests or stream.flying is not None or state is None:
            raise BadInput(
                f"{where}: expected a stream at rest, got one with a chunk on its way; wait for its answer first"
            )
        return Start(state, stream.done)

    def exchange(self, stream: LiveStream, where: str, change: Callable[[Start], Start], now: int) -> None:
        """Replace the state of a stream, as `Server.exchange` describes."""
        state, stream.done = change(self.at_rest(stream, where))
        self._slots.commit(stream.hold, state)
        stream.last, stream.sent, stream.is_short = now, stream.done, False

    # Chunks

    def check(self, stream: LiveStream, where: str) -> None:
        """Refuse a stream that has ended.

        Raises:
            BadInput: it has ended.
        """
        if stream.ended == MODEL_CLOSED:
            expected, got, cure = "a stream of an open model", "one of a closed model", "load the bundle again"
        elif stream.ended == "closed":
            expected, got, cure = "an open stream", "a closed one", "open another with open_stream()"
        elif stream.ended:
            expected, got, cure = "an open stream", f"one that ended: {stream.ended}", "open another with open_stream()"
        else:
            return
        raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")

    def check_chunk(self, stream: LiveStream, request: LiveRequest[Any]) -> None:
        """Refuse a push during another push of the stream, or a chunk out of order.

        Raises:
            BadInput: the chunk is refused, or the stream has ended.
        """
        if stream.ended:
            self.check(stream, request.where)
        if request.worker is not None and stream.requests:
            raise BadInput(
                f"{request.where}: expected one push at a time, got a push during another; "
                "give each thread a stream of its own"
            )
        expected = stream.next_chunk()
        if request.sequence is None and stream.sent != expected:
            raise BadInput(
                f"{request.where}: expected chunk {expected} of the stream, which was lost, got one behind it; read "
                f"the result of what was lost and go on from there, or say sequence={expected}"
            )
        if request.sequence is not None and request.sequence != expected:
            raise BadInput(
                f"{request.where}: expected chunk {expected} of the stream, got {request.sequence}; "
                "push every chunk once and in order"
            )

    def extend(self, part: Part, now: int) -> None:
        """Append a chunk that follows from an answer of its request, in any stream of it, and queue it if it can be."""
        request, stream = part.request, part.live
        assert stream is not None
        others = [other for other in request.parts if other.live is not stream]
        if len(others) == len(request.parts):  # its first chunk in this stream
            stream.requests += 1
        request.parts = [*others, part]
        stream.waiting.append(part)
        stream.sent += 1
        self.advance(stream, now)

    def advance(self, stream: LiveStream, now: int) -> None:
        """Queue the next chunk of a stream, if none is in flight and the caller reads its responses."""
        while stream.flying is None and stream.waiting:
            part = stream.waiting[0]
            if part.request.waits_for_reader(part):
                if stream.full_since is None:
                    stream.full_since = now
                    self._watch(stream, now + SLOW_READER_NS, SLOW)
                    self._tell(stream, "paused", SLOW, now)
                return
            until = part.request.parked_until(part, now) if part.request.is_continued else None
            if until is not None:
                self._watch(stream, until, PARKED)
                return
            stream.flying = stream.waiting.popleft()
            self._tracker.queue(part, now)

    def resume(self, request: LiveRequest[Any], now: int) -> bool:
        """Continue the streams of a request whose caller has read a response; return whether one had paused."""
        paused = [stream for stream in streams_of(request) if stream.full_since is not None]
        if not paused or request.is_full:
            return False
        for stream in paused:
            stream.full_since = None
            self._tell(stream, "resumed", "", now)
            self.advance(stream, now)
        return True

    # Time

    def _watch(self, stream: LiveStream, due: int, kind: str) -> None:
        heapq.heappush(self._dues, (due, stream.number, kind))
        self._ring_at(self._dues[0][0])

    def expire(self, now: int) -> None:
        """End the streams that were idle or unread for too long, and request the next call of this method."""
        while self._dues and self._dues[0][0] <= now:
            _, number, kind = heapq.heappop(self._dues)
            stream = self._open.get(number)
            if stream is not None and kind == SLOW:
                self._end_if_slow(stream, now)
            elif stream is not None and kind == PARKED:
                self.advance(stream, now)
            elif stream is not None:
                self._end_if_idle(stream, now)
        if self._dues:
            self._ring_at(self._dues[0][0])

    def _end_if_slow(self, stream: LiveStream, now: int) -> None:
        if stream.full_since is not None:
            if now - stream.full_since >= SLOW_READER_NS:
                self.end(stream, "slow", SLOW, now)
            else:
                self._watch(stream, stream.full_since + SLOW_READER_NS, SLOW)

    def _end_if_idle(self, stream: LiveStream, now: int) -> None:
        assert stream.options.idle_ns is not None
        since = now if stream.flying is not None or stream.waiting else stream.last
        if now - since >= stream.options.idle_ns:
            self.end(stream, "expired", IDLE, now)
        else:
            self._watch(stream, since + stream.options.idle_ns, IDLE)

    def _tell(self, stream: LiveStream, change: StreamChange, reason: str, now: int) -> None:
        if self._bus.wanted:
            self._bus.note("stream_changed", stream.version.name, stream.number, change, reason, now)
