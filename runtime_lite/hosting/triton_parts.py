"""Implements a decoupled model of Triton's Python backend: speech of a text, or the answers to a whole recording.

    voice       a text goes in, packets of sound come out as they are made
    recording   all chunks of a stream go in, along an axis in front of the others; the answer to each comes out

The last response of a request is empty, or an error. Timeout, `runtime_priority` and cancellation are those of
`triton_backend`. A voice takes the parameters `seed` and `lead_ms` of `Model.say`, and those of `Sampling`.

Source: triton-inference-server/python_backend, README of release 24.10 (decoupled mode).
"""

import asyncio
import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.sampling import Sampling
from runtime_lite.hosting.named_streams import rows_of
from runtime_lite.hosting.triton_backend import DRAIN_S, LOOK_S, Asked, Opened, Request, Sender
from runtime_lite.serving.ticket import ResponseQueue

OF_SAMPLING = {
    "max_tokens": int,
    "min_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "repetition_penalty": float,
    "penalty_window": int,
}
"""Parameters of a voice that replace those of the bundle's sampling, and their types."""


class TritonPythonModel:
    """The voice of a bundle, or one of its graphs with states; the server makes one object per instance."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the bundle, as `Opened` says.

        Raises:
            RuntimeLiteError: the bundle is refused, and the server does not load the model.
        """
        self._opened = Opened.by(args)
        self._loop = asyncio.new_event_loop()
        self._flying: set[asyncio.Future[None]] = set()
        self._answering = threading.Thread(target=self._loop.run_forever, name="runtime_lite answers", daemon=True)
        self._answering.start()

    def execute(self, requests: Sequence[Request]) -> None:
        """Submit requests; the answers are sent later, by another thread."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                parts = self._submit(request)
            except Exception as error:  # noqa: BLE001 - one request must not take its neighbours along
                self._opened.send_error(sender, error)
                continue
            self._loop.call_soon_threadsafe(self._answer_soon, parts, sender)

    def finalize(self) -> None:
        """Answer the admitted requests, drop those that exceed the limit, and close everything."""
        self._opened.runtime.drain(DRAIN_S)
        asyncio.run_coroutine_threadsafe(self._all_answered(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._answering.join()
        self._loop.close()
        self._opened.runtime.close()

    def _submit(self, request: Request) -> ResponseQueue[Any]:
        asked, options = Asked.by(request), self._opened.options
        return self._say(asked) if options.parts == "voice" else self._recording(asked)

    def _say(self, asked: Asked) -> ResponseQueue[Any]:
        voice = self._opened.model.bundle.manifest.voice
        assert voice is not None, "a repository names the voice of a bundle that has one"
        seed, lead_ms = asked.parameters.get("seed"), asked.parameters.get("lead_ms")
        return self._opened.model.say(
            asked.feeds,
            _sampling(voice.sampling, asked.parameters),
            seed=seed,
            lead_ms=lead_ms,
            priority=asked.priority,
            deadline_ms=asked.deadline_ms,
        )

    def _recording(self, asked: Asked) -> ResponseQueue[Any]:
        model, graph, idle_s = self._opened.model, self._opened.options.graph, self._opened.options.idle_s
        chunks = _chunks(graph, asked.feeds)
        rows = rows_of(model.asked(graph), chunks[0])
        stream = model.open_stream(graph, rows, priority=asked.priority, idle_s=idle_s)
        try:
            responses = stream.submit_all(chunks, asked.deadline_ms, copy=False)
        except BaseException:
            stream.close()
            raise
        responses.when_done(stream.close)
        return responses

    def _answer_soon(self, parts: ResponseQueue[Any], sender: Sender) -> None:
        task = self._loop.create_task(self._answer(parts, sender))
        self._flying.add(task)
        task.add_done_callback(self._flying.discard)

    async def _answer(self, parts: ResponseQueue[Any], sender: Sender) -> None:
        watching = self._loop.create_task(_take_back(parts, sender))
        try:
            async for part in parts:
                sender.send(self._opened.response(self._arrays(part)))
            self._opened.send_last(sender)
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller is told
            self._opened.send_error(sender, error)
        finally:
            watching.cancel()

    def _arrays(self, part: Any) -> Mapping[str, Array]:
        """Return what a response holds: a packet under the name of the sound, or the outputs of a chunk."""
        voice = self._opened.model.bundle.manifest.voice
        return part if isinstance(part, Mapping) or voice is None else {voice.sound: part}

    async def _all_answered(self) -> None:
        while self._flying:
            await asyncio.wait(self._flying)


async def _take_back(parts: ResponseQueue[Any], sender: Sender) -> None:
    """Cancel a request once its caller has."""
    while not sender.is_cancelled():
        await asyncio.sleep(LOOK_S)
    parts.cancel()


def _chunks(graph: str, feeds: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Return the feeds of a recording, whose inputs have an axis of chunks in front."""
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in feeds.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise BadInput(
            f"{graph}: expected inputs with one axis of chunks in front, of one size from 1 on, got sizes "
            f"{show(counts)}; stack the chunks of each input"
        )
    return [{name: array[number] for name, array in feeds.items()} for number in range(next(iter(counts.values())))]


def _sampling(usual: Sampling, parameters: Mapping[str, Any]) -> Sampling:
    """Return the sampling of a voice; the server's parameters have no real numbers, which come as text.

    Raises:
        BadInput: a parameter is out of its range, or no number.
    """
    changed: dict[str, Any] = {}
    for name, kind in OF_SAMPLING.items():
        if (given := parameters.get(name)) is None:
            continue
        try:
            number = kind(given) if isinstance(given, str) else given
        except ValueError:
            number = math.nan
        if number != number:
            raise BadInput(f"voice: expected {name} as a number, got {show(given)}; correct the parameter")
        changed[name] = number
    return dataclasses.replace(usual, **changed)
