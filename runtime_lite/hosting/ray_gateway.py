"""Routes the calls of clients of a Ray Serve application to the replica of each stream, and restores lost streams.

A stream is named by the gateway when it is opened. Its *pin* is the replica that has it and its generation there. A
replica that leaves hands its streams over as bytes, which are restored elsewhere with the next chunk. A replica that is
lost, or does not answer, takes its streams along, unless the application keeps snapshots: then the newest is restored
elsewhere and the chunks behind it, which the gateway still has, run again. Otherwise the stream ends with `StreamLost`
and the number of the last chunk that counted; a chunk is never answered from another state.

All streams of an application pass through one gateway: its replacement after a crash finds where they live by asking
every replica.
"""

import asyncio
import contextlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from runtime_lite.errors import BadInput, RuntimeLiteError, StreamLost, show
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.named_streams import MOVED, UNKNOWN, MovedStream
from runtime_lite.hosting.ray_replica import ELSEWHERE, Placed, RayOptions
from runtime_lite.serving.refusals import overloaded
from runtime_lite.serving.request import Outputs

LEAVES_S, LEAVES_EXACTLY_S = 5.0, 0.5
"""Seconds to wait for a stream whose replica is not there any more and may be about to hand it over: where its state
would be lost otherwise, and where it can be restored exactly anyway."""

SETTLES_S = 60.0
"""Seconds after its start in which a gateway waits for streams that it does not know and that may be on their way."""

GONE = "its replica is gone"
"""Reason of `StreamLost` where nothing is left of the state of a stream."""

TRIES = 3
"""How often a chunk is sent, to a replica of its stream each time, before no replica counts as able to answer."""

PLACES, PLACE_S = 5, 1.0
"""How often a stream is placed, and the seconds after which it is tried again, as nothing is run for it. Ray's router
loses some calls that come while a replica dies: of 13 at one time, 3 were not sent for as long as one waited."""

MOST_DEAD = 64
"""Replicas that did not answer and may do so again; of older ones, streams end when they have idled."""

AT_ONCE = 4
"""Lost streams that are brought back at one time, so that a lost replica does not crowd out live streams."""


Answer = TypeVar("Answer")


class Address(NamedTuple):
    """A stream as its client knows it.

    Attributes:
        stream: its name.
        generation: raised by `resume`, so that only the newest of several clients is heard.
        number: number of its next chunk.
    """

    stream: str
    generation: int
    number: int


class Counts(NamedTuple):
    """What has become of the streams: opened = closed + lost + idle + live.

    Attributes:
        opened: streams that were opened.
        closed: ended by their clients.
        lost: ended with `StreamLost`.
        idle: forgotten by their clients.
        live: open.
        moved: handed over by a replica that left, and placed anew.
        restored: taken from a replica that was lost, and placed anew.
    """

    opened: int
    closed: int
    lost: int
    idle: int
    live: int
    moved: int
    restored: int


@dataclass(eq=False)
class _Pin:
    """A stream and its place.

    Attributes:
        replica: the replica that has it; empty while none has.
        generation: its generation there.
        heard: generation of the client that is heard; 0 after a crash of the gateway, until a client comes.
        rows: rows of every chunk.
        counted: chunks that counted.
        content: newest bytes; empty for the initial state.
        start: number of the next chunk behind `content`; None if these bytes are not known.
        behind: the feeds since `content`, if snapshots are kept.
        used: seconds of a monotonic clock at the last call.
        lock: held during a chunk.
        left: set when its replica has handed it over.
    """

    replica: str
    generation: int
    heard: int
    rows: int
    counted: int = 0
    content: bytes = b""
    start: int | None = 0
    behind: list[Mapping[str, Array]] = field(default_factory=list)
    used: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    left: asyncio.Event = field(default_factory=asyncio.Event)


class Gateway:
    """The calls of an application.

    Args:
        replicas: handle of the deployment of `StreamsReplica`.
        options: options of the application.
        gone: errors of the handle that say that a replica does not exist or does not answer.
    """

    def __init__(self, replicas: Any, options: RayOptions, gone: tuple[type[BaseException], ...] = ()) -> None:
        """Start without streams."""
        self._replicas, self._options = replicas, options
        self._gone: tuple[type[BaseException], ...] = (*gone, TimeoutError)
        self._dead: OrderedDict[str, list[tuple[str, int]]] = OrderedDict()
        self._waited_for: dict[str, asyncio.Event] = {}
        self._settled = time.monotonic() + SETTLES_S
        self._tasks: set[asyncio.Future[Any]] = set()
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        self._ends = dict.fromkeys(("opened", "closed", "lost", "idle", "moved", "restored"), 0)
        self._bringing_back = asyncio.Semaphore(AT_ONCE)

    async def open(self, rows: int = 1) -> Address:
        """Open a stream.

        Raises:
            BadInput: there are no buckets of so many rows.
            Overloaded: the replica has no place left.
        """
        now, idle_s = time.monotonic(), self._options.idle_s
        while self._pins and (first := next(iter(self._pins.items())))[1].used + idle_s < now:
            del self._pins[first[0]]  # its replica has ended it by itself
            self._ends["idle"] += 1
        stream = uuid.uuid4().hex
        placed = await self._placed(stream, 1, b"", rows)
        self._pins[stream] = _Pin(placed.replica, placed.generation, 1, rows, used=now)
        self._ends["opened"] += 1
        return Address(stream, 1, 0)

    async def push(self, stream: str, generation: int, number: int, feeds: Mapping[str, Array]) -> Outputs:
        """Run the next chunk of a stream.

        Args:
            stream: name of the stream.
            generation: generation of the client's address.
            number: number of the chunk, from 0. The newest chunk sent again counts once.
            feeds: every input of role data.

        Returns:
            Every output of role data.

        Raises:
            BadInput: the feed is wrong, or the chunk is not the next one.
            Overloaded: there is no place for a stream that has to move; its state is kept, and it can be tried again.
            StreamLost: there is no such stream, another client has resumed it, or its replica was lost.
        """
        pin = await self._pin_of(stream, generation)
        # a client that goes away takes no chunk back that may have counted
        return await asyncio.shield(self._kept(self._push_alone(stream, pin, generation, number, feeds)))

    async def _push_alone(
        self, stream: str, pin: _Pin, generation: int, number: int, feeds: Mapping[str, Array]
    ) -> Outputs:
        async with pin.lock:
            self._check(stream, pin, generation)
            try:
                return await self._pushed(stream, pin, number, feeds)
            except StreamLost:
                if self._pins.pop(stream, None) is not None:
                    self._ends["lost"] += 1
                raise

    async def resume(self, stream: str, generation: int) -> Address:
        """Continue a stream from another connection; the address that was used before is not heard any more.

        Raises:
            StreamLost: as for `push`.
        """
        pin = await self._pin_of(stream, generation)
        async with pin.lock:
            self._check(stream, pin, generation)
            pin.heard += 1
            return Address(stream, pin.heard, pin.counted)

    async def close(self, stream: str, generation: int) -> int:
        """End a stream; return the number of its chunks that counted.

        Raises:
            StreamLost: as for `push`.
        """
        pin = await self._pin_of(stream, generation)
        async with pin.lock:
            self._check(stream, pin, generation)
            del self._pins[stream]
            self._ends["closed"] += 1
            if pin.replica:
                self._forget(stream, pin)
            return pin.counted

    async def hand_over(self, moved: MovedStream) -> None:
        """Take a stream that leaves its replica, or a gateway that ends; it is placed anew with its next chunk."""
        stream = str(moved.stream)
        pin = self._pins.get(stream)
        if pin is None and moved.content:
            pin = _Pin("", moved.generation, 0, moved.rows, used=time.monotonic())
            self._pins[stream] = pin
            self._ends["opened"] += 1
        if pin is not None and pin.generation == moved.generation:
            if moved.content:
                pin.content, pin.start, pin.behind, pin.replica = moved.content, moved.sequence, [], ""
                pin.counted = max(pin.counted, moved.sequence)
                self._ends["moved"] += 1
            pin.left.set()
        if (waited_for := self._waited_for.pop(stream, None)) is not None:
            waited_for.set()

    def homeless(self) -> list[MovedStream]:
        """Return the streams that were handed over and not placed anew yet, for the next gateway."""
        return [
            MovedStream(stream, pin.generation, pin.rows, pin.start, pin.content)
            for stream, pin in self._pins.items()
            if not pin.replica and pin.content and pin.start is not None and not pin.behind
        ]

    async def counts(self) -> Counts:
        """Return what has become of the streams."""
        return Counts(live=len(self._pins), **self._ends)

    async def _pin_of(self, stream: str, generation: int) -> _Pin:
        if stream not in self._pins:
            try:
                found = await self._asked(self._broadcast("where", stream))
            except self._gone as error:
                raise _lost(stream, f"not every replica can be asked for it: {type(error).__name__}", None) from None
            placed = next((Placed(*each) for each in found if each is not None), None)
            if placed is None and time.monotonic() < self._settled:
                with contextlib.suppress(TimeoutError):
                    await _within(LEAVES_S, self._waited_for.setdefault(stream, asyncio.Event()).wait())
            elif placed is not None and stream not in self._pins:
                self._pins[stream] = _Pin(placed.replica, placed.generation, 0, placed.rows, placed.number, start=None)
                self._ends["opened"] += 1
        if stream not in self._pins:
            self._waited_for.pop(stream, None)
            raise _lost(stream, UNKNOWN, None)
        pin = self._pins[stream]
        if pin.heard == 0 and type(generation) is int and generation > 0:
            pin.heard = generation
        pin.used = time.monotonic()
        self._pins.move_to_end(stream)
        return pin

    def _check(self, stream: str, pin: _Pin, generation: int) -> None:
        if self._pins.get(stream) is not pin:  # it ended while this call waited
            raise _lost(stream, UNKNOWN, pin.counted - 1)
        if type(generation) is not int or generation != pin.heard:
            raise _lost(stream, f"heard in generation {pin.heard}, not {show(generation)}", pin.counted - 1)

    async def _pushed(self, stream: str, pin: _Pin, number: int, feeds: Mapping[str, Array]) -> Outputs:
        if type(number) is not int or not pin.counted - 1 <= number <= pin.counted or number < 0:
            raise BadInput(
                f"Gateway.push: expected chunk {pin.counted} of the stream, got {show(number)}; push every chunk once "
                "and in order"
            )
        every, reason = self._options.snapshot_every, ""
        for _ in range(TRIES):
            try:
                if reason or not pin.replica or pin.replica in self._dead:
                    await self._bring_back(stream, pin, reason or GONE)
                wants = bool(every) and (pin.start is None or number + 1 - pin.start >= every)
                outputs, content = await self._at_replica(stream, pin, number, feeds, wants)
            except self._gone:
                self._lose(pin.replica)
                reason = GONE
            except StreamLost as error:
                if error.reason == GONE:
                    raise
                reason = error.reason
            else:
                break
        else:
            raise overloaded("Gateway", "no replica answers")
        pin.counted = max(pin.counted, number + 1)
        if content:
            pin.content, pin.start, pin.behind = content, number + 1, []
        elif every and pin.start is not None and pin.start + len(pin.behind) == number:
            pin.behind.append(feeds)
        return outputs

    async def _at_replica(
        self, stream: str, pin: _Pin, number: int, feeds: Mapping[str, Array], with_snapshot: bool
    ) -> tuple[Outputs, bytes]:
        outputs, content = await self._asked(
            self._replicas.push.remote(
                stream, pin.generation, number, feeds, with_snapshot=with_snapshot, pin=pin.replica
            )
        )
        return outputs, content

    async def _bring_back(self, stream: str, pin: _Pin, reason: str) -> None:
        """Place a stream anew whose replica has handed it over, or is lost.

        Raises:
            Overloaded: there is no place for it; its state is kept.
            StreamLost: its state is not known, or fits no replica.
        """
        is_exact = pin.start is not None and pin.start + len(pin.behind) == pin.counted
        if pin.replica and reason in (MOVED, ELSEWHERE):
            with contextlib.suppress(TimeoutError):
                await _within(LEAVES_EXACTLY_S if is_exact else LEAVES_S, pin.left.wait())
        if pin.replica:  # not handed over
            self._forget(stream, pin)
            if not is_exact:
                raise _lost(stream, GONE, pin.counted - 1)
            self._ends["restored"] += 1
        async with self._bringing_back:
            left, pin.replica, generation = pin.replica, "", pin.generation + 1
            pin.generation += PLACES  # a try that nobody waited for may still arrive
            try:
                placed = await self._placed(stream, generation, pin.content, pin.rows, left)
            except BadInput as error:
                raise _lost(stream, GONE, pin.counted - 1) from error  # its bundle is not served any more
            pin.replica, pin.generation = placed.replica, placed.generation
            pin.left.clear()
            for number, feeds in enumerate(pin.behind, pin.start or 0):
                await self._at_replica(stream, pin, number, feeds, with_snapshot=False)

    async def _placed(self, stream: str, generation: int, content: bytes, rows: int, left: str = "") -> Placed:
        """Place a stream at any replica that answers, in its initial state if there is no content.

        Each try has a higher generation, so that of an earlier one that arrives late nothing is heard.

        Raises:
            BadInput: no replica can take it: wrong rows, or bytes of another bundle.
            Overloaded: no replica has a place for it, or none answers.
        """
        avoid, reason = [left], ""
        for number in range(PLACES):
            try:
                call = self._replicas.place.remote(stream, generation + number, content, rows, avoid=avoid)
                placed: Placed = await self._asked(call, min(PLACE_S, self._options.answer_s))
            except self._gone:
                reason = "no replica answers"
                continue
            if (left_there := self._dead.pop(placed.replica, None)) is not None:  # it was mute, and answers again
                await _ignored(self._replicas.forget.remote(left_there, pin=placed.replica))
            elif placed.number < 0:
                avoid.append(placed.replica)
            if placed.number >= 0:
                return placed
            reason = "all places for streams are taken"
        raise overloaded("Gateway", reason)

    def _lose(self, replica: str) -> None:
        """Call a replica no more, unless it answers again when a stream is to be placed."""
        self._dead.setdefault(replica, [])
        while len(self._dead) > MOST_DEAD:
            self._dead.popitem(last=False)

    def _forget(self, stream: str, pin: _Pin) -> None:
        """End a stream at its replica as soon as that answers, without waiting for it."""
        if pin.replica in self._dead:
            self._dead[pin.replica].append((stream, pin.generation))
        else:
            left = [(stream, pin.generation)]
            self._kept(_ignored(self._replicas.forget.remote(left, pin=pin.replica)))

    def _kept(self, work: Coroutine[Any, Any, Answer]) -> "asyncio.Task[Answer]":
        """Start work that goes on whoever waits for it; the loop alone would not keep it alive."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _broadcast(self, call: str, *arguments: object) -> Awaitable[Any]:
        results = self._replicas.broadcast(call, *arguments).results
        return asyncio.to_thread(results, timeout_s=self._options.answer_s)

    async def _asked(self, call: Awaitable[Any], limit_s: float | None = None) -> Any:
        """Wait for an answer, by default for as long as a replica has, and raise what it raised as what it was there.

        Raises:
            TimeoutError: there is none for so long that the other side counts as lost.
            RuntimeLiteError: the other side refused.
        """
        try:
            return await _within(self._options.answer_s if limit_s is None else limit_s, call)
        except RuntimeLiteError as error:
            raise getattr(error, "cause", error) from None


async def _within(seconds: float, call: Awaitable[Any]) -> Any:
    try:
        return await asyncio.wait_for(call, seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None


async def _ignored(call: Awaitable[Any]) -> None:
    try:
        await call
    except Exception:  # noqa: BLE001 - the replica is gone, or has ended the stream by itself
        return


def _lost(stream: str, reason: str, last_counted: int | None) -> StreamLost:
    counted = "" if last_counted is None else f" behind chunk {last_counted}"
    return StreamLost(
        f"Gateway: expected a chunk of a stream that lives, got one of {show(stream)}, lost{counted}: {reason}; open "
        "another stream",
        reason,
        last_counted,
    )
