"""Serves streams by their callers' names: runs each chunk from the state of the chunk before it, or refuses it.

A chunk never creates a stream. A stream has a generation, which whoever places it raises each time that it is placed
anew: after a move, a loss, or when a second caller takes it over. A chunk of another generation is refused, so that a
caller or a worker that was mute for a while cannot count a chunk twice. A chunk whose number is repeated counts once
and is answered again. What is refused says which chunk was the last one that counted (`StreamLost`).

A stream leaves as bytes, at the border of a chunk, and continues where they are restored. A stream without chunks ends
after a while.
"""

import contextlib
import hashlib
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

import numpy as np

from runtime_lite.calls.pipeline import Runnable
from runtime_lite.calls.state_bytes import MOST_CHUNKS, generation_in
from runtime_lite.errors import BadInput, StreamLost, show
from runtime_lite.format.arrays import Array
from runtime_lite.model import Model
from runtime_lite.serving.refusals import check_seconds, overloaded
from runtime_lite.serving.request import Outputs
from runtime_lite.serving.ticket import Ticket
from runtime_lite.stream import Stream

Name = int | str

MOST_REMEMBERED = 65_536
"""Streams that have ended and whose last generation and chunk are remembered; of an older one, nothing is known."""

UNKNOWN, GENERATION, MOVED, CLOSED = "unknown", "generation", "moved", "closed"
"""Reasons of `StreamLost` beside those for which the runtime ends a stream by itself."""


class Place(NamedTuple):
    """The position of a chunk: its stream, and whether it starts or ends it.

    Attributes:
        stream: name of its stream.
        start: whether it is the first one.
        end: whether it is the last one.
        number: its number in the stream, counted from 0; None if the caller does not count.
        generation: generation of its stream; 0 if the caller does not count those.
    """

    stream: Name
    start: bool = False
    end: bool = False
    number: int | None = None
    generation: int = 0


class MovedStream(NamedTuple):
    """A stream that a drain has ended here, to be restored elsewhere.

    Attributes:
        stream: its name.
        generation: its generation; the next one is at least one higher.
        rows: its number of rows.
        sequence: number of its next chunk.
        content: its bytes for `NamedStreams.restore`; empty if a chunk did not end within the limit and it is lost.
    """

    stream: Name
    generation: int
    rows: int
    sequence: int
    content: bytes


class _Ended(NamedTuple):
    generation: int
    last_counted: int
    reason: str


@dataclass(eq=False)
class _Placed:
    """An open stream.

    Attributes:
        stream: the stream.
        generation: its generation.
        rows: its number of rows.
        lock: held while a chunk is queued, so that a repeated chunk finds the first one.
        tickets: requests that may not have ended, in order.
        newest: number and digest of the newest chunk that has a number, and its request.
        is_leaving: whether it takes no more chunks because it is moved.
    """

    stream: Stream
    generation: int
    rows: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    tickets: deque[Ticket[Outputs]] = field(default_factory=deque)
    newest: tuple[int, bytes, Ticket[Outputs]] | None = None
    is_leaving: bool = False


def rows_of(runner: Runnable, feeds: Mapping[str, Array]) -> int:
    """Return the number of rows of a feed; 1 if it is wrong, which its check finds later."""
    for name, at in runner.fed.items():
        array = feeds.get(name) if isinstance(feeds, Mapping) else None
        if at is not None and isinstance(array, np.ndarray) and array.ndim > at:
            rows: int = array.shape[at]
            return max(1, min(rows, runner.most_rows))
    return 1


class NamedStreams:
    """The streams of one graph by their callers' names.

    Args:
        model: a loaded bundle.
        graph: name of a graph with states; None for the only one, or those that are wired.
        idle_s: seconds without a chunk after which a stream ends; None for never.
    """

    def __init__(self, model: Model, graph: str | None, idle_s: float | None) -> None:
        """Start without streams."""
        self._model, self._graph, self._idle_s = model, graph, idle_s
        self._where = model.asked(graph).name
        self._streams: OrderedDict[Name, _Placed] = OrderedDict()
        self._ended: OrderedDict[Name, _Ended] = OrderedDict()
        self._lock = threading.Lock()
        self._is_draining = False

    def open(self, name: Name, generation: int = 0, rows: int = 1, priority: int = 0) -> None:
        """Open a stream in its initial state; a stream of an older generation is ended.

        Args:
            name: name of the stream.
            generation: its generation; with 0 a name can be used again, without one protecting the other.
            rows: rows of every chunk.
            priority: priority of the stream.

        Raises:
            BadInput: the name is in use, or an argument is wrong.
            Overloaded: no slot is free, or the runtime or this worker drains.
            StreamLost: this generation, or a newer one, has ended here.
        """
        _check_name(self._where, name, generation)
        with self._lock:
            self._check_new(name, generation)
            self._place(name, generation, rows, self._opened(rows, priority))

    def submit(
        self, place: Place, feeds: Mapping[str, Array], deadline_ms: float | None = None, priority: int = 0
    ) -> Ticket[Outputs]:
        """Queue a chunk.

        Args:
            place: the position of the chunk.
            feeds: every input of role data; all chunks of a stream have the rows of its first.
            deadline_ms: from now on; an answer after it is not delivered.
            priority: priority of the stream, if the chunk starts it.

        Returns:
            The request. A chunk with the number and the feeds of the newest one gets the request of that one.

        Raises:
            BadInput: the feed is wrong, the name to start is in use, or the number is not the next one.
            Overloaded: no slot is free, the stream's credits are used up, or the runtime or this worker drains.
            StreamLost: no stream of this name and generation is open here.
        """
        is_repeat = place.start and self._has_newest(place, feeds)
        if place.start and not is_repeat:
            self.open(place.stream, place.generation, rows_of(self._model.asked(self._graph), feeds), priority)
        placed = self._known(place.stream, place.generation)
        try:
            ticket = self._queue(placed, place, feeds, deadline_ms)
        except BaseException:
            if place.start and not is_repeat:
                self._forget(place.stream, placed)
            raise
        if place.end:
            ticket.when_done(lambda: self._end(place.stream, placed, CLOSED))
        return ticket

    def snapshot(self, name: Name, generation: int = 0) -> bytes:
        """Return the bytes of a stream, which goes on.

        Raises:
            BadInput: a chunk is on its way.
            StreamLost: no stream of this name and generation is open here.
        """
        placed = self._known(name, generation)
        return placed.stream.snapshot().to_bytes(str(name), generation)

    def restore(self, name: Name, generation: int, content: bytes, rows: int = 1, sequence: int | None = None) -> int:
        """Open a stream that continues from bytes; a stream of an older generation is ended.

        Args:
            name: name of the stream, which the bytes must be of.
            generation: its new generation, above that of the bytes.
            content: what `snapshot`, `take_out` or `drain` gave here or elsewhere.
            rows: rows of every chunk.
            sequence: number of the next chunk that the bytes must have; None for any.

        Returns:
            The number of the next chunk.

        Raises:
            BadInput: the bytes are not a snapshot of this stream, bundle and graph, are damaged, or are of another
                moment; or the name is in use.
            Overloaded: no slot is free, or the runtime or this worker drains.
            StreamLost: this generation, or a newer one, has ended here.
        """
        _check_name(self._where, name, generation)
        if generation <= generation_in(content):
            raise BadInput(
                f"{self._where}: expected a generation above that of the snapshot, {generation_in(content)}, got "
                f"{generation}; raise it whenever a stream is placed anew"
            )
        with self._lock:
            self._check_new(name, generation)
            stream = self._opened(rows, 0)
            try:
                stream.restore(content, str(name), generation_in(content))
                if sequence is not None and (type(sequence) is not int or stream.sequence != sequence):
                    raise BadInput(
                        f"{self._where}: expected a snapshot before chunk {show(sequence)}, got one before chunk "
                        f"{stream.sequence}; restore the newest one, or say where the caller goes on"
                    )
            except BaseException:
                stream.close()
                raise
            self._place(name, generation, rows, stream)
            return stream.sequence

    def close(self, name: Name, generation: int = 0) -> int:
        """End a stream; return the number of its chunks that counted.

        Raises:
            StreamLost: no stream of this name and generation is open here.
        """
        placed = self._known(name, generation)
        self._end(name, placed, CLOSED)
        return placed.stream.sequence

    def take_out(self, name: Name, generation: int = 0, limit_s: float = 10.0) -> MovedStream:
        """End a stream behind the chunks that are on their way, and return it; new chunks are refused at once.

        Args:
            name: name of the stream.
            generation: its generation.
            limit_s: seconds that its chunks have; what has not run by then is taken back.

        Raises:
            BadInput: the limit is no number from 0 on.
            StreamLost: no stream of this name and generation is open here.
        """
        check_seconds(self._where, "limit_s", limit_s)
        placed = self._known(name, generation)
        with placed.lock:
            placed.is_leaving = True
        until, rest = monotonic() + limit_s, threading.Event()
        for ticket in placed.tickets:
            rest.clear()
            ticket.when_done(rest.set)
            if not rest.wait(max(until - monotonic(), 0.0)):
                ticket.cancel()
        content = b""
        with contextlib.suppress(BadInput):  # a run that goes on, or a stream that ended in the meantime
            content = placed.stream.snapshot().to_bytes(str(name), generation)
        self._end(name, placed, MOVED)
        return MovedStream(name, generation, placed.rows, placed.stream.sequence, content)

    def drain(self, limit_s: float) -> Iterator[MovedStream]:
        """Take no new streams, and take the open ones out, one at a time; those behind it go on until their turn.

        Args:
            limit_s: seconds that the chunks of each stream have.

        Yields:
            Every stream, so that only one at a time is in memory twice.

        Raises:
            BadInput: the limit is no number from 0 on.
        """
        check_seconds(self._where, "limit_s", limit_s)
        self._is_draining = True
        while True:
            with self._lock:
                name, placed = next(iter(self._streams.items()), (None, None))
            if name is None or placed is None:
                return
            with contextlib.suppress(StreamLost):  # it ended in the meantime
                yield self.take_out(name, placed.generation, limit_s)

    @property
    def count(self) -> int:
        """Number of open streams."""
        with self._lock:
            return sum(not placed.stream.ended for placed in self._streams.values())

    def where(self, name: Name) -> MovedStream | None:
        """Return what is known of an open stream, without its bytes; None without one."""
        with self._lock:
            placed = self._streams.get(name)
            if placed is None or placed.stream.ended:
                return None
            return MovedStream(name, placed.generation, placed.rows, placed.stream.sequence, b"")

    def _opened(self, rows: int, priority: int) -> Stream:
        if self._is_draining:
            raise overloaded(self._where, "draining")
        return self._model.open_stream(self._graph, rows, priority=priority, idle_s=self._idle_s)

    def _place(self, name: Name, generation: int, rows: int, stream: Stream) -> None:
        """Enter a stream; called under the lock."""
        if (older := self._streams.pop(name, None)) is not None:
            older.stream.close()
        self._ended.pop(name, None)
        self._streams[name] = _Placed(stream, generation, rows)

    def _check_new(self, name: Name, generation: int) -> None:
        """Refuse a name and generation that cannot be opened; called under the lock."""
        while self._streams and (oldest := next(iter(self._streams.items())))[1].stream.ended:
            self._remember(*oldest, oldest[1].stream.ended)  # all idle alike, so that whoever was forgotten is in front
        placed = self._streams.get(name)
        if placed is not None and placed.stream.ended:
            self._remember(name, placed, placed.stream.ended)
            placed = None
        if placed is not None and generation <= placed.generation:
            raise BadInput(
                f"{self._where}: expected the start of a new stream, got a start of {show(name)}, which is open in "
                f"generation {placed.generation}; end it first, take another name, or a higher generation"
            )
        ended = self._ended.get(name)
        if placed is None and ended is not None and 0 < generation <= ended.generation:
            raise self._lost(name, generation, GENERATION, ended)

    def _known(self, name: Name, generation: int) -> _Placed:
        """Return an open stream.

        Raises:
            StreamLost: there is none of this name and generation.
        """
        _check_name(self._where, name, generation)
        with self._lock:
            placed = self._streams.get(name)
            if placed is not None and placed.stream.ended:
                self._remember(name, placed, placed.stream.ended)
                placed = None
            if placed is None:
                ended = self._ended.get(name)
                raise self._lost(name, generation, UNKNOWN if ended is None else ended.reason, ended)
            if placed.generation != generation or placed.is_leaving:
                here = _Ended(placed.generation, placed.stream.sequence - 1, MOVED)
                raise self._lost(name, generation, MOVED if placed.is_leaving else GENERATION, here)
            self._streams.move_to_end(name)
            return placed

    def _lost(self, name: Name, generation: int, reason: str, here: _Ended | None) -> StreamLost:
        last_counted = here.last_counted if here is not None and here.generation == generation else None
        got = {
            UNKNOWN: "which nobody has started here",
            GENERATION: f"which is of generation {here.generation if here else 0} here",
            MOVED: "which has moved to another worker",
        }.get(reason, f"which has ended: {reason}")
        counted = "" if last_counted is None else f" behind chunk {last_counted}"
        return StreamLost(
            f"{self._where}: expected a chunk of an open stream, got one of {show(name)} in generation {generation}, "
            f"{got}{counted}; ask where it lives, or start it again in a higher generation",
            reason,
            last_counted,
        )

    def _queue(
        self, placed: _Placed, place: Place, feeds: Mapping[str, Array], deadline_ms: float | None
    ) -> Ticket[Outputs]:
        with placed.lock:
            if placed.is_leaving:
                here = _Ended(placed.generation, placed.stream.sequence - 1, MOVED)
                raise self._lost(place.stream, place.generation, MOVED, here)
            if place.number is not None and (ticket := _newest(placed, place.number, feeds)) is not None:
                return ticket
            ticket = placed.stream.submit(feeds, deadline_ms, place.number)
            while placed.tickets and placed.tickets[0].done():
                placed.tickets.popleft()
            placed.tickets.append(ticket)
            placed.newest = None if place.number is None else (place.number, _digest(feeds), ticket)
            return ticket

    def _has_newest(self, place: Place, feeds: Mapping[str, Array]) -> bool:
        """Return whether a chunk that starts a stream repeats the one that started it."""
        with self._lock:
            placed = self._streams.get(place.stream)
        if placed is None or placed.generation != place.generation or place.number is None:
            return False
        with placed.lock:
            return _newest(placed, place.number, feeds) is not None

    def _forget(self, name: Name, placed: _Placed) -> None:
        """End a stream whose first chunk was refused, as if nobody had started it."""
        placed.stream.close()
        with self._lock:
            if self._streams.get(name) is placed:
                del self._streams[name]

    def _end(self, name: Name, placed: _Placed, reason: str) -> None:
        placed.stream.close()
        with self._lock:
            if self._streams.get(name) is placed:
                self._remember(name, placed, reason)

    def _remember(self, name: Name, placed: _Placed, reason: str) -> None:
        """Take an ended stream out and remember its end; called under the lock."""
        del self._streams[name]
        self._ended.pop(name, None)
        self._ended[name] = _Ended(placed.generation, placed.stream.sequence - 1, reason)
        while len(self._ended) > MOST_REMEMBERED:
            self._ended.popitem(last=False)


def _newest(placed: _Placed, number: int, feeds: Mapping[str, Array]) -> Ticket[Outputs] | None:
    """Return the request of the newest chunk if this chunk repeats it, and it has not been lost."""
    if placed.newest is None or placed.newest[0] != number:
        return None
    _, digest, ticket = placed.newest
    return ticket if ticket.outcome in (None, "done") and digest == _digest(feeds) else None


def _digest(feeds: Mapping[str, Array]) -> bytes:
    """Return a digest of a feed; empty for what is no feed, which its check finds."""
    if not isinstance(feeds, Mapping) or any(type(array) is not np.ndarray for array in feeds.values()):
        return b""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(feeds, key=str):
        array = feeds[name]
        digest.update(f"{name}:{array.dtype}:{array.shape}:".encode("utf-8", "surrogatepass"))
        digest.update(array.tobytes())
    return digest.digest()


def _check_name(where: str, name: Name, generation: int) -> None:
    if type(name) not in (int, str) or not str(name):
        raise BadInput(f"{where}: expected the name of a stream as a text or a number, got {show(name)}; name it")
    if type(generation) is not int or not 0 <= generation <= MOST_CHUNKS:
        raise BadInput(f"{where}: expected a generation from 0 on, got {show(generation)}; leave it out")
