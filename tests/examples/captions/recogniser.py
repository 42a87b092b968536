"""A recogniser that hears a word in every burst of noise, in the place of a bundle, and a client that plays to it."""

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from examples.captions.sessions import STEADY, TRANSIENT, Closed
from examples.streaming_asr import features, text
from runtime_lite.format.arrays import Array

WORD = "above"
"""A word whose spelling is one label."""

TOKENS = text.read_tokens()
LABEL = TOKENS.encode(WORD)[0]
LOUD = -8.0
"""Log-mel energy above which a frame is loud."""

SURE = 20.0
"""Logit of the label that is heard."""


def speech(bursts: int, pause_s: float = 0.8, burst_s: float = 0.5) -> features.Samples:
    """Return float32 [samples]: bursts of noise, and a pause behind each."""
    generator = np.random.default_rng(bursts)
    second = features.SAMPLE_RATE_HZ
    burst = 0.3 * generator.standard_normal(int(burst_s * second)).astype(np.float32)
    pause = np.zeros(int(pause_s * second), np.float32)
    return np.concatenate([np.zeros(second // 4, np.float32), *([burst, pause] * bursts)]).clip(-1, 1)


def logits_of(frames: features.Frames) -> features.Frames:
    """Return logits float32 [frames // 4, labels] of feature frames [3 more, 80]: a label where they are loud."""
    logits = np.zeros(((len(frames) - features.SHARED_FRAMES) // 4, len(TOKENS.pieces)), np.float32)
    for place, row in enumerate(logits):
        row[LABEL if frames[4 * place : 4 * place + 4].mean() > LOUD else text.BLANK] = SURE
    return logits


class Recogniser:
    """Answers as a model of the runtime.

    Attributes:
        heard: chunks of all streams.
        open: open streams.
        error: what the next requests end in; None if they are answered.
    """

    def __init__(self, *graphs: str) -> None:
        self.bundle = SimpleNamespace(manifest=SimpleNamespace(graphs=graphs or (TRANSIENT, STEADY)))
        self.heard = self.open = 0
        self.error: Exception | None = None

    def open_stream(self, graph: str) -> "Hearing":
        assert graph == TRANSIENT
        self.open += 1
        return Hearing(self)

    def submit(self, feeds: Mapping[str, Array], graph: str, **_: Any) -> Awaitable[dict[str, Array]]:
        assert graph == STEADY
        return self.answer(feeds["features"])

    async def answer(self, frames: Array) -> dict[str, Array]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return {"logits": logits_of(frames[0])[np.newaxis]}


class Hearing:
    """A stream of the recogniser."""

    def __init__(self, recogniser: Recogniser) -> None:
        self._recogniser = recogniser

    def submit(self, feeds: Mapping[str, Array], copy: bool = True) -> Awaitable[dict[str, Array]]:
        self._recogniser.heard += 1
        return self._recogniser.answer(feeds["features"])

    def close(self) -> None:
        self._recogniser.open -= 1


class Client:
    """The client's end of a connection in memory.

    Attributes:
        is_closed: whether the server has closed it.
        is_deaf: whether it reads nothing.
    """

    def __init__(self) -> None:
        self.sent: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.got: asyncio.Queue[str] = asyncio.Queue()
        self.is_closed = self.is_deaf = False

    async def receive(self) -> str | bytes:
        message = None if self.is_closed else await self.sent.get()
        if message is None:
            raise Closed
        return message

    async def send(self, message: str) -> None:
        if self.is_closed:
            raise Closed
        if self.is_deaf:
            await asyncio.Event().wait()
        self.got.put_nowait(message)

    async def close(self) -> None:
        self.is_closed = True
        self.sent.put_nowait(None)

    def say(self, message: Mapping[str, Any] | bytes) -> None:
        """Send a message to the server."""
        self.sent.put_nowait(message if isinstance(message, bytes) else json.dumps(message))

    def play(self, recording: Iterable[bytes]) -> None:
        """Send blocks and end the session."""
        for block in recording:
            self.say(block)
        self.say({"end": True})

    async def read(self) -> dict[str, Any]:
        """Return the server's next message."""
        told: dict[str, Any] = json.loads(await self.got.get())
        return told

    async def until(self, key: str) -> dict[str, Any]:
        """Return the server's next message that has a key."""
        while key not in (told := await self.read()):
            pass
        return told


def blocks(samples: features.Samples, size: int = 1600) -> list[bytes]:
    """Return the messages of a recording."""
    whole = np.round(32767 * samples).astype("<i2")
    return [
        number.to_bytes(4, "little") + whole[start : start + size].tobytes()
        for number, start in enumerate(range(0, len(whole), size))
    ]
