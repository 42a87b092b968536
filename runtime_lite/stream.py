"""Defines a stream, which runs chunks in order through a graph whose states the runtime keeps.

One chunk is in flight at a time, and answers come in the order of the chunks. A chunk counts once its run has
succeeded; `sequence` is the number of the next one. A chunk that is refused, fails, is dropped or is cancelled before
its run does not change the stream, and the chunks queued behind it are dropped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from runtime_lite.calls.flush import flush_feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, check_state, copy_of_state
from runtime_lite.calls.state_bytes import MOST_CHUNKS, Origin, bytes_of_state, state_from_bytes
from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.serving.live_streams import Start
from runtime_lite.serving.request import LiveRequest, LiveStream, Outputs, Part
from runtime_lite.serving.server import Server
from runtime_lite.serving.shield import Shield
from runtime_lite.serving.ticket import Responses, Ticket, deadline_at


@dataclass(frozen=True)
class Snapshot:
    """The state of a stream at one moment; streams can be restored from it any number of times.

    Attributes:
        bundle: identity of the bundle whose stream it was.
        graph: graph name.
        sequence: number of chunks that had been run.
        state: states and lengths of caches.
    """

    bundle: str
    graph: str
    sequence: int
    state: StreamState

    def to_bytes(self, stream: str = "", generation: int = 0) -> bytes:
        """Return the snapshot as bytes, from which a stream of the same bundle goes on in any process or machine.

        Args:
            stream: name of the stream, which whoever restores must know; empty for none.
            generation: generation of the stream, likewise.

        Raises:
            BadInput: the name is no text, the generation no number from 0 on, or the snapshot was changed.
        """
        origin = checked_origin("Snapshot.to_bytes", self.bundle, self.graph, stream, generation)
        state, sequence = self.state, self.sequence
        if type(sequence) is not int or not 0 <= sequence <= MOST_CHUNKS or not isinstance(state, StreamState):
            raise BadInput(
                f"Snapshot.to_bytes: expected a snapshot as snapshot() gave it, got one with {show(sequence)} chunks; "
                "take another"
            )
        return bytes_of_state(origin._replace(sequence=sequence), state)


class Stream:
    """One stream, best used in a `with` block.

    A stream that is no longer referenced is closed at the next call of any stream.
    """

    def __init__(self, server: Server, live: LiveStream) -> None:
        """Wrap a stream that the server has opened."""
        self._server = server
        self._live = live
        server.watch_holder(live, self)

    def push(self, feeds: Mapping[str, Array], sequence: int | None = None) -> Outputs:
        """Run the next chunk and wait for its answer.

        Args:
            feeds: every input of role data, with the stream's number of rows.
            sequence: number of the chunk, counted from 0; refused if it is not the next one.

        Returns:
            Every output of role data.

        Raises:
            BadInput: the feed is wrong, the stream or its model is closed, or another push runs; the state is
                unchanged.
            BundleRefused: the graph file is not what the manifest says.
            Overloaded: the runtime drains.
        """
        live = self._live
        where = f"{live.runner.name}.push"
        request = LiveRequest(self._server, where, live.options.service.name, _only)
        parts = self._parts(request, 0, where, feeds, None, copy=False)
        request.sequence = _checked_sequence(where, sequence)
        self._server.call(request, live.version, parts)
        return request.answer()

    def submit(
        self,
        feeds: Mapping[str, Array],
        deadline_ms: float | None = None,
        sequence: int | None = None,
        *,
        copy: bool = True,
    ) -> Ticket[Outputs]:
        """Queue the next chunk.

        Args:
            feeds: every input of role data, with the stream's number of rows.
            deadline_ms: from now on; an answer after it is not delivered.
            sequence: number of the chunk, counted from 0; refused if it is not the next one. By default the chunk
                follows the one submitted before, and is refused if that one was lost and no caller has seen its error
                yet.
            copy: take a copy of the arrays, which are the caller's again when this returns. Without, they are handed
                over: until the request has ended nobody may write to them.

        Raises:
            BadInput: the feed is wrong, the chunk is not the next one, or the stream or its model is closed.
            Overloaded: the stream's credits are used up, or the runtime drains.
        """
        live = self._live
        where = f"{live.runner.name}.submit"
        ticket = Ticket(self._server, where, live.options.service.name, _only)
        ticket.sequence = _checked_sequence(where, sequence)
        hard = deadline_at(where, self._server.clock(), deadline_ms)
        parts = self._parts(ticket, 0, where, feeds, hard, copy)
        self._server.submit(ticket, live.version, parts)
        return ticket

    def flush(self) -> Outputs:
        """Push a chunk of zeros that completes outputs which lag behind the chunks; then `reset` or `close` the stream.

        Returns:
            Every output of role data of one more chunk of zeros, whose length the bundle states.

        Raises:
            BadInput: the bundle states no such chunk, or as for `push`.
        """
        return self.push(self._flush_feed("flush"))

    def submit_flush(self, deadline_ms: float | None = None) -> Ticket[Outputs]:
        """Queue the chunk of zeros that `flush` pushes, behind the chunks that are queued.

        Args:
            deadline_ms: from now on; an answer after it is not delivered.

        Raises:
            BadInput: the bundle states no such chunk, or as for `submit`.
            Overloaded: the stream's credits are used up, or the runtime drains.
        """
        return self.submit(self._flush_feed("submit_flush"), deadline_ms, copy=False)

    def _flush_feed(self, call: str) -> dict[str, Array]:
        live, where = self._live, f"{self._live.runner.name}.{call}"
        self._server.check_stream(live, where)
        if not isinstance(live.runner, GraphRunner):
            raise BadInput(f"{where}: expected a stream of one graph, got one of wired graphs; push what completes it")
        return flush_feed(where, live.runner.graph, live.rows)

    def submit_all(
        self,
        chunks: Sequence[Mapping[str, Array]],
        deadline_ms: float | None = None,
        room: int = 8,
        *,
        copy: bool = True,
    ) -> Responses:
        """Queue many chunks as one request with one response per chunk; iterate over it to read them.

        Args:
            chunks: feeds in order; together they are one request and take one credit.
            deadline_ms: deadline of all of them, from now on.
            room: number of responses that may be unread; at that number the stream pauses, and if none is read for long
                it is closed.
            copy: as for `submit`.

        Raises:
            BadInput: a chunk is wrong, or the stream or its model is closed; nothing was queued.
            Overloaded: the stream's credits are used up, or the runtime drains.
        """
        where = f"{self._live.runner.name}.submit_all"
        if not isinstance(chunks, Sequence):
            raise BadInput(
                f"{where}: expected a list of feeds, got a {type(chunks).__name__}; write [{{'name': array}}, ...]"
            )
        self._server.check_stream(self._live, where)
        ticket = Responses(self._server, where, self._live.options.service.name, len(chunks), room)
        hard = deadline_at(where, self._server.clock(), deadline_ms)
        parts = [
            part
            for number, feeds in enumerate(chunks)
            for part in self._parts(ticket, number, f"{where}: chunk {number}", feeds, hard, copy)
        ]
        self._server.submit(ticket, self._live.version, parts)
        return ticket

    def _parts(
        self,
        request: LiveRequest[Any],
        index: int,
        where: str,
        feeds: Mapping[str, Array],
        hard: int | None,
        copy: bool,
    ) -> list[Part]:
        """Check the feeds of a chunk and return the parts of the request that can be queued now."""
        live = self._live
        if live.ended:
            self._server.check_stream(live, where)
        check_copy(where, copy)
        feed = live.runner.check(where, feeds, live.rows, copy=copy)
        if feed.rows != live.rows:
            raise BadInput(
                f"{where}: expected {live.rows} rows, as the stream was opened, got {feed.rows}; "
                f"feed {live.rows} or open a stream with rows={feed.rows}"
            )
        service, now = live.options.service, self._server.clock()
        return self._server.parts_of(request, index, live.version, live.runner, [feed], service, now, hard, live)

    def snapshot(self) -> Snapshot:
        """Return a copy of the stream's state.

        Raises:
            BadInput: the stream is closed, or a chunk is on its way.
        """
        copies: list[Start] = []

        def look(start: Start) -> Start:
            copies.append(Start(copy_of_state(start.state), start.done))
            return start

        self._server.exchange(self._live, f"{self._live.runner.name}.snapshot", look)
        state, done = copies[0]
        return Snapshot(self._live.version.bundle.manifest_sha256, self._live.runner.name, done, state)

    def restore(self, snapshot: Snapshot | bytes, stream: str = "", generation: int = 0) -> None:
        """Continue from a snapshot of this stream or of another stream of the same graph.

        Args:
            snapshot: what `snapshot()` returned, or its `to_bytes()`, also of another process or machine.
            stream: for bytes, the name that they must have been written for.
            generation: for bytes, the generation that they must have been written for.

        Raises:
            BadInput: it is no snapshot, or one of another bundle, graph or number of rows (a snapshot that was stored
                is checked again); bytes are damaged, cut off, of another version, stream or generation; the stream is
                closed; or a chunk is in flight.
        """
        live = self._live
        where = f"{live.runner.name}.restore"
        if isinstance(snapshot, bytes):
            bundle, initial = live.version.bundle.manifest_sha256, live.runner.initial_state(live.rows)
            expected_origin = checked_origin(where, bundle, live.runner.name, stream, generation)
            start = Start(*state_from_bytes(where, snapshot, expected_origin, initial, live.runner.slots))
            self._server.exchange(live, where, lambda _: start)
            return
        if not isinstance(snapshot, Snapshot):
            raise BadInput(f"{where}: expected a snapshot, got {show(snapshot)}; take one with snapshot()")
        origin = snapshot.bundle, snapshot.graph
        expected = live.version.bundle.manifest_sha256, live.runner.name
        if any(type(text) is not str for text in origin) or origin != expected:
            raise BadInput(
                f"{where}: expected a snapshot of the graph {live.runner.name!r} of {live.version.bundle.path}, got "
                f"one of {show(snapshot.graph)} of another bundle or graph; a state belongs to the weights that made it"
            )
        if type(snapshot.sequence) is not int or snapshot.sequence < 0:
            raise BadInput(
                f"{where}: expected a number of chunks from 0 on, got {show(snapshot.sequence)}; "
                "restore what snapshot() gave"
            )
        check_state(where, snapshot.state, live.runner.initial_state(live.rows), live.runner.slots)
        self._server.exchange(live, where, lambda _: Start(copy_of_state(snapshot.state), snapshot.sequence))

    def fork(self) -> "Stream":
        """Open a second stream that continues from a copy of this one's state, in the same version of the model.

        Raises:
            BadInput: the stream is closed, or a chunk is on its way.
            Overloaded: no slot is free, or the runtime drains.
        """
        with Shield():
            return Stream(self._server, self._server.fork_stream(self._live, f"{self._live.runner.name}.fork"))

    def reset(self) -> None:
        """Set the stream back to its initial state.

        Raises:
            BadInput: the stream is closed, or a chunk is on its way.
        """
        state = self._live.runner.initial_state(self._live.rows)
        self._server.exchange(self._live, f"{self._live.runner.name}.reset", lambda _: Start(state, 0))

    @property
    def sequence(self) -> int:
        """Number of chunks that have been run: the number of the next one when none is in flight."""
        return self._live.done

    @property
    def ended(self) -> str:
        """The reason why the stream takes no more chunks; empty while it is open."""
        return self._live.ended

    @property
    def state(self) -> StreamState:
        """A copy of the stream's current state; empty once the stream has ended."""
        return copy_of_state(self._server.state_of(self._live))

    def close(self) -> None:
        """End the stream, drop its state and what it has not answered yet; a second call does nothing."""
        self._server.close_stream(self._live)

    def __enter__(self) -> "Stream":
        """Return the stream.

        Raises:
            BadInput: it is closed.
        """
        self._server.check_stream(self._live, f"{self._live.runner.name}.push")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        self.close()


def checked_origin(where: str, bundle: str, graph: str, stream: str, generation: int) -> Origin:
    """Return whose state bytes are, without the number of chunks.

    Raises:
        BadInput: a text is none, or the generation no number from 0 on.
    """
    if type(bundle) is not str or not re.fullmatch("[0-9a-f]{64}", bundle) or type(graph) is not str:
        raise BadInput(f"{where}: expected a snapshot as snapshot() gave it, got one of {show(bundle)}; take another")
    if type(stream) is not str:
        raise BadInput(f"{where}: expected the name of a stream as text, got {show(stream)}; leave it out")
    if type(generation) is not int or not 0 <= generation <= MOST_CHUNKS:
        raise BadInput(f"{where}: expected a generation from 0 on, got {show(generation)}; leave it out")
    return Origin(bundle, graph, stream, generation)


def check_copy(where: str, copy: bool) -> None:
    """Refuse a value of `copy` that is not a boolean.

    Raises:
        BadInput: it is neither True nor False.
    """
    if type(copy) is not bool:
        raise BadInput(f"{where}: expected copy as True or False, got {show(copy)}; leave it out")


def _checked_sequence(where: str, sequence: int | None) -> int | None:
    """Return the sequence number that the caller passed.

    Raises:
        BadInput: it is neither None nor an integer from 0 on.
    """
    if sequence is not None and (type(sequence) is not int or sequence < 0):
        raise BadInput(f"{where}: expected sequence as a number from 0 on, got {show(sequence)}; leave it out")
    return sequence


def _only(outputs: list[list[Outputs]]) -> Outputs:
    return outputs[0][0]
