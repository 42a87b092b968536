"""Captions over any connection that carries messages: a session has a name, a generation, and numbered blocks of audio.

A client's messages are JSON, but for blocks, which are bytes:

    {}                                      opens a session
    {"session": NAME, "generation": N}      goes on with one, on this connection in the place of another
    NUMBER SAMPLES                          a block: its number as uint32, then int16 samples of 16 kHz, little-endian
    {"end": true}                           ends the session

The server's are JSON. The first one is {"session", "generation", "next", "lines", "transient"}: the generation for the
next connection, the number of the next block, the steady lines and the transient text so far. Then follow {"next",
"transient"} behind every chunk, {"line", "steady", "milliseconds"} behind every utterance, whose line is the transient
text where there was no time for the steady one, and {"ended": true} or {"refused": SENTENCE, "next"} at the end. A
block that comes twice counts once; one that does not follow is refused, as is a session of another generation. A
session whose connection is gone waits for another one, and then ends.
"""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from examples.captions.caption import Caption
from examples.captions.rescoring import Rescorer, language_model
from examples.streaming_asr import features, text
from runtime_lite import BadInput, Model, RuntimeLiteError
from runtime_lite.errors import show
from runtime_lite.scheduling.task import UTTERANCE
from runtime_lite.stream import Stream

NUMBER_BYTES = 4
MOST_SAMPLES = features.SAMPLE_RATE_HZ
"""Samples of a block: 1 s."""

MOST_BYTES = NUMBER_BYTES + 2 * MOST_SAMPLES
"""Bytes of a message."""

SEND_S = 10.0
"""How long a client may leave messages unread until its connection is closed, in seconds."""

TRANSIENT, STEADY = "transient", "steady"
"""The graphs of the bundle."""


class Closed(Exception):
    """The connection is gone."""


class Connection(Protocol):
    """A connection to a client."""

    async def receive(self) -> str | bytes:
        """Wait for the next message.

        Raises:
            Closed: there is none.
        """
        ...

    async def send(self, message: str) -> None:
        """Send a message, and wait while the client reads too slowly.

        Raises:
            Closed: the client is gone.
        """
        ...

    async def close(self) -> None:
        """Close the connection; a wait for a message ends."""
        ...


class _Refused(Exception):
    """The session goes no further on this connection; the message is a sentence for the client."""


class _Session:
    """One speaker.

    Attributes:
        generation: raised by every connection.
        next: number of the next block.
        lines: steady text.
        transient: text of the utterance so far.
        connection: where its messages go; None while there is none.
        left: when the last connection went, on the clock of `time.monotonic`.
        lock: held while a block is at work, so that another connection goes on behind it.
    """

    def __init__(self, name: str, stream: Stream, tokens: text.TokenTable) -> None:
        self.name, self.stream, self.caption = name, stream, Caption(tokens)
        self.generation = self.next = 0
        self.lines: list[str] = []
        self.transient = ""
        self.connection: Connection | None = None
        self.left = time.monotonic()
        self.lock = asyncio.Lock()
        self.steady: list[asyncio.Task[None]] = []

    def leave(self, connection: Connection) -> None:
        """Wait for another connection, if this one is the newest."""
        if self.connection is connection:
            self.connection, self.left = None, time.monotonic()


class Sessions:
    """All sessions of a bundle of captions.

    Args:
        model: the loaded bundle.
        idle_s: seconds that a session waits for another connection.

    Raises:
        BadInput: the bundle is not of captions.
    """

    def __init__(self, model: Model, idle_s: float = 60.0) -> None:
        wanted = {TRANSIENT, STEADY}
        if not wanted <= set(model.bundle.manifest.graphs):
            raise BadInput(
                f"captions: expected a bundle with the graphs {TRANSIENT} and {STEADY}, got "
                f"{', '.join(model.bundle.manifest.graphs)}; build one with python build.py --recipe captions.yaml"
            )
        self._model, self._idle_s = model, idle_s
        self._tokens = text.read_tokens()
        self._rescorer = Rescorer(self._tokens, language_model())
        self._sessions: dict[str, _Session] = {}

    @property
    def count(self) -> int:
        """Number of sessions, with those that wait for another connection."""
        return len(self._sessions)

    async def serve(self, connection: Connection) -> None:
        """Serve a connection until it is closed, refused, or its session ends."""
        session: _Session | None = None
        try:
            session = await self._connected(connection)
            while session.connection is connection:
                message = await connection.receive()
                async with session.lock:
                    if session.connection is connection:
                        await self._take(session, message)
        except Closed:
            pass
        except (_Refused, RuntimeLiteError) as error:
            told: dict[str, Any] = {"refused": str(error)}
            if session is not None:
                told["next"] = session.next
            with contextlib.suppress(Closed):
                await _send(connection, told)
        finally:
            if session is not None:
                session.leave(connection)
            await connection.close()

    def sweep(self) -> None:
        """End the sessions that have waited too long for another connection."""
        now = time.monotonic()
        for session in [*self._sessions.values()]:
            if session.connection is None and now - session.left >= self._idle_s:
                self._forget(session)

    async def _connected(self, connection: Connection) -> _Session:
        """Return the session that the first message asks for."""
        self.sweep()
        asked = _read(await connection.receive())
        if "session" not in asked:
            session = _Session(secrets.token_hex(8), self._model.open_stream(TRANSIENT), self._tokens)
            self._sessions[session.name] = session
        else:
            session = self._known(asked)
        session.generation += 1
        older, session.connection = session.connection, None
        if older is not None:
            await older.close()
        async with session.lock:  # a block of the connection before may be at work
            session.connection = connection
            greeting = {
                "session": session.name,
                "generation": session.generation,
                "next": session.next,
                "lines": session.lines,
                "transient": session.transient,
            }
            await _send(connection, greeting)
        return session

    def _known(self, asked: Mapping[str, Any]) -> _Session:
        name, generation = asked["session"], asked.get("generation")
        session = self._sessions.get(name) if isinstance(name, str) else None
        if session is None:
            raise _Refused(
                f"session: expected an open one, got {show(name)}, which has ended or never began; open another one"
            )
        if generation != session.generation or isinstance(generation, bool):
            raise _Refused(
                f"session: expected generation {session.generation}, got {show(generation)}; another connection has "
                "taken it over, open another one"
            )
        return session

    async def _take(self, session: _Session, message: str | bytes) -> None:
        if isinstance(message, bytes):
            await self._block(session, message)
            return
        if _read(message).get("end") is not True:
            raise _Refused(f'message: expected a block or {{"end": true}}, got {show(message)}; see the protocol')
        await self._end(session)

    async def _block(self, session: _Session, message: bytes) -> None:
        number, samples = _samples(message)
        if number < session.next:  # it came over the connection before, whose answer was lost
            await self._tell(session, {"next": session.next, "transient": session.transient})
            return
        if number > session.next:
            raise _Refused(f"block: expected number {session.next}, got {number}; send every block once, in order")
        chunks = session.caption.add(samples)
        session.next += 1
        for chunk in chunks:
            await self._chunk(session, chunk)

    async def _chunk(self, session: _Session, chunk: features.Frames) -> None:
        outputs = await session.stream.submit({"features": chunk[np.newaxis]}, copy=False)
        heard = session.caption.hear(chunk, outputs["logits"][0])
        session.transient = heard.transient
        await self._tell(session, {"next": session.next, "transient": session.transient})
        if heard.utterance is not None:
            self._rescore(session, heard.utterance, heard.transient)

    def _rescore(self, session: _Session, utterance: features.Frames, transient: str) -> None:
        """Start the steady text of an utterance; lines come in the order of the utterances."""
        before, ended = session.steady[-1:], time.perf_counter()

        async def rescored() -> None:
            line, is_steady = transient, False  # where the runtime has no time, or the run fails
            with contextlib.suppress(RuntimeLiteError):
                outputs = await self._model.submit({"features": utterance}, STEADY, service=UTTERANCE, copy=False)
                best = await asyncio.to_thread(self._rescorer.best, outputs["logits"][0])
                line, is_steady = best[0] or transient, bool(best[0])
            await asyncio.gather(*before, return_exceptions=True)
            session.lines.append(line)
            took = round(1e3 * (time.perf_counter() - ended), 1)
            await self._tell(session, {"line": line, "steady": is_steady, "milliseconds": took})

        session.transient = ""
        session.steady = [task for task in session.steady if not task.done()]
        session.steady.append(asyncio.get_running_loop().create_task(rescored()))

    async def _end(self, session: _Session) -> None:
        for chunk in session.caption.finish():
            await self._chunk(session, chunk)
        utterance = session.caption.end()
        if utterance is not None:
            self._rescore(session, utterance, session.transient)
        await asyncio.gather(*session.steady)
        await self._tell(session, {"ended": True})
        self._forget(session)

    async def _tell(self, session: _Session, message: Mapping[str, Any]) -> None:
        """Send a message where the session is connected; otherwise the next connection gets all text at once."""
        if (connection := session.connection) is not None:
            try:
                await _send(connection, message)
            except Closed:
                session.leave(connection)
                await connection.close()

    def _forget(self, session: _Session) -> None:
        """End a session; its connection is closed behind the last message."""
        self._sessions.pop(session.name, None)
        session.connection = None
        session.stream.close()


async def _send(connection: Connection, message: Mapping[str, Any]) -> None:
    try:
        await asyncio.wait_for(connection.send(json.dumps(message)), SEND_S)
    except TimeoutError:
        raise Closed from None


def _read(message: str | bytes) -> dict[str, Any]:
    try:
        told = json.loads(message) if isinstance(message, str) else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise _Refused(f"message: expected an object as JSON, got {show(message)}; see the protocol")
    return told


def _samples(message: bytes) -> tuple[int, features.Samples]:
    """Return number and samples of a block."""
    size = len(message) - NUMBER_BYTES
    if not 0 < size <= 2 * MOST_SAMPLES or size % 2:
        raise _Refused(
            f"block: expected a number of {NUMBER_BYTES} bytes and 1 to {MOST_SAMPLES} samples of 2 bytes, got "
            f"{len(message)} bytes; send less at once"
        )
    number = int.from_bytes(message[:NUMBER_BYTES], "little")
    return number, np.frombuffer(message, "<i2", offset=NUMBER_BYTES) * np.float32(2**-15)
