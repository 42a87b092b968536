"""A simple server of streams: an asyncio queue in front of ONNX Runtime, which uses nothing of the runtime.

Rows are collected for some milliseconds, up to a largest number, and run without padding; with one row it is a bare
loop.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.serving.bare_steps import BareSteps, Feeds
from runtime_lite.format.arrays import Array
from runtime_lite.load_test.drive import Ends
from runtime_lite.serving.events import Request


class Number(NamedTuple):
    """A submitted request."""

    number: int


class QueuedStream:
    """A stream: its states and its waiting chunks."""

    def __init__(self, queue: "PlainQueue", states: dict[str, Array]) -> None:
        """Start without chunks."""
        self.states, self.waiting = states, deque[tuple[int, Feeds]]()
        self._queue = queue

    def submit(self, feeds: Feeds) -> Number:
        """Send a chunk: one row of every input that is no state."""
        return self._queue.submit(self, feeds)

    def close(self) -> None: ...


class PlainQueue:
    """A queue with one collecting task and one thread per lane.

    Args:
        file: an ONNX file whose rows are open.
        states: outputs that are fed back, by input.
        initial: initial states of a stream by input, one row each.
        lanes: runs at once, of one thread each.
        most: rows of a run.
        window_s: from the first row of a run until it starts, unless it is full.
        ends: notified of every chunk.
    """

    def __init__(
        self,
        file: Path,
        states: Mapping[str, str],
        initial: Feeds,
        lanes: int,
        most: int,
        window_s: float,
        ends: Ends,
    ) -> None:
        """Open the file and start the loop."""
        self._steps = BareSteps(file, states)
        self._initial, self._most, self._window_s, self._ends = initial, most, window_s, ends
        self._submitted = self._answered = 0
        self._loop, self._pool = asyncio.new_event_loop(), ThreadPoolExecutor(lanes)
        self._ready: asyncio.Queue[QueuedStream] = asyncio.Queue()
        self._lanes = [self._loop.create_task(self._serve()) for _ in range(lanes)]
        self._thread = threading.Thread(target=self._loop.run_forever, name="plain queue")
        self._thread.start()

    def open_stream(self) -> QueuedStream:
        """Open a stream."""
        return QueuedStream(self, dict(self._initial))

    def submit(self, stream: QueuedStream, feeds: Feeds) -> Number:
        """Queue a chunk after those of its stream."""
        self._submitted += 1
        self._loop.call_soon_threadsafe(self._arrived, stream, self._submitted, feeds)
        return Number(self._submitted)

    def drain(self) -> None:
        """Wait for all answers, and stop.

        Raises:
            Exception: a run has failed.
        """
        while self._answered < self._submitted and not any(lane.done() for lane in self._lanes):
            time.sleep(0.005)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        failures = [lane.exception() for lane in self._lanes if lane.done()]
        for lane in self._lanes:
            lane.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._lanes, return_exceptions=True))
        self._loop.close()
        self._pool.shutdown()
        for failure in failures:
            raise failure or RuntimeError("a lane has stopped")

    def _arrived(self, stream: QueuedStream, number: int, feeds: Feeds) -> None:
        stream.waiting.append((number, feeds))
        if len(stream.waiting) == 1:
            self._ready.put_nowait(stream)

    async def _serve(self) -> None:
        while True:
            batch = [await self._ready.get()]
            until = self._loop.time() + self._window_s
            while len(batch) < self._most:
                try:
                    batch.append(await asyncio.wait_for(self._ready.get(), until - self._loop.time()))
                except TimeoutError:
                    break
            await self._loop.run_in_executor(self._pool, self._run, batch)
            self._settle(batch)

    def _run(self, batch: list[QueuedStream]) -> None:
        """Run the next chunk of each stream together."""
        after = self._steps.run([stream.states | dict(stream.waiting[0][1]) for stream in batch])
        for stream, states in zip(batch, after, strict=True):
            stream.states = states

    def _settle(self, batch: list[QueuedStream]) -> None:
        now = time.monotonic_ns()
        for stream in batch:
            number, _ = stream.waiting.popleft()
            self._ends.ended(Request(number, "", "", "", 1, None, None, now, now, None, 0.0), "done", "", now)
            if stream.waiting:
                self._ready.put_nowait(stream)
        self._answered += len(batch)
