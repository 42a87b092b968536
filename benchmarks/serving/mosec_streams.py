"""Streams on mosec, a public server with batching: as many servers as lanes, each with one worker.

mosec hands a request to any of its workers, and a worker that holds states must get every chunk of its streams: so each
lane has a server of its own, and streams are dealt out in turn. Chunks travel over HTTP and from mosec's process to the
worker's; both are mosec's own cost, and in the computing time that is counted, as is that of the client here.
"""

import asyncio
import contextlib
import importlib.util
import json
import math
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.bare_steps import BareSteps, Feeds
from benchmarks.serving.plain_queue import Number
from benchmarks.serving.triton_server import Absent
from runtime_lite.load_test.drive import Ends
from runtime_lite.serving.events import Request

SETTINGS_VARIABLE = "SLIPWAY_MOSEC_SETTINGS"

HEADER = struct.Struct("<IB")
"""Number of a stream, and whether it begins."""

START_S = 60.0

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def mosec(
    file: Path, states: Mapping[str, str], initial: Feeds, call: Feeds, lanes: int, most: int, window_s: float
) -> Iterator["MosecServers"]:
    """Yield servers that have answered a first request; they end with the block.

    Args:
        file: an ONNX file whose rows are open.
        states: outputs that are fed back, by input.
        initial: what a stream begins with, by input, one row each.
        call: a chunk: every other input, one row each.
        lanes: servers, of one worker with one thread each.
        most: rows of a run.
        window_s: for so long mosec gathers rows.

    Raises:
        Absent: mosec is not installed.
        RuntimeError: a server does not start.
    """
    if importlib.util.find_spec("mosec") is None:
        raise Absent("not installed")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_settings(folder, file, states, initial, call, most, window_s)
        servers = MosecServers(folder, lanes)
        try:
            servers.warm(call)
            yield servers
        finally:
            servers.close()


def write_settings(
    folder: Path, file: Path, states: Mapping[str, str], initial: Feeds, call: Feeds, most: int, window_s: float
) -> None:
    """Write the settings of a server, with the arguments of `mosec`."""
    inputs = [(name, array.dtype.str, array.shape) for name, array in call.items()]
    settings: dict[str, Any] = {"file": str(file.absolute()), "states": dict(states), "inputs": inputs}
    settings |= {"most": most, "window_ms": round(1e3 * window_s)}
    (folder / "settings.json").write_text(json.dumps(settings))
    np.savez(folder / "initial.npz", **initial)  # type: ignore[arg-type]


class HeldStreams:
    """The streams of one worker: the states of each, by number.

    A request is a stream's number, whether it begins, and one row of each input that is no state, one after the other.
    """

    def __init__(self) -> None:
        """Open the file of the settings."""
        settings = self.settings()
        self._inputs = [(name, np.dtype(dtype), shape) for name, dtype, shape in settings["inputs"]]
        self._steps = BareSteps(Path(settings["file"]), settings["states"])
        with np.load(Path(os.environ[SETTINGS_VARIABLE], "initial.npz")) as arrays:
            self._initial = dict(arrays)
        self.states: dict[int, dict[str, np.ndarray]] = {}

    @staticmethod
    def settings() -> dict[str, Any]:
        """Return the settings that `write_settings` wrote."""
        read: dict[str, Any] = json.loads(Path(os.environ[SETTINGS_VARIABLE], "settings.json").read_text())
        return read

    def step(self, requests: Sequence[bytes]) -> None:
        """Run the next chunk of different streams together."""
        numbers, rows = [], []
        for request in requests:
            number, begins = HEADER.unpack_from(request)
            row = dict(self._initial if begins else self.states[number])
            place = HEADER.size
            for name, dtype, shape in self._inputs:
                count = math.prod(shape)
                row[name] = np.frombuffer(request, dtype, count, place).reshape(shape)
                place += count * dtype.itemsize
            numbers.append(number)
            rows.append(row)
        self.states.update(zip(numbers, self._steps.run(rows), strict=True))


class MosecServers:
    """Running servers.

    Args:
        folder: folder of the settings and of the servers' output.
        lanes: number of servers.
    """

    def __init__(self, folder: Path, lanes: int) -> None:
        """Start them."""
        self.ports = [_free_port() for _ in range(lanes)]
        self._log = folder / "log"
        surroundings = os.environ | {
            SETTINGS_VARIABLE: str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        surroundings["OMP_NUM_THREADS"] = "1"
        self._processes = []
        for port in self.ports:
            command = [sys.executable, "-m", "benchmarks.serving.mosec_server", "--address=127.0.0.1", f"--port={port}"]
            command += ["--timeout=60000", "--capacity=100000", "--log-level=warning", f"--path={folder / str(port)}"]
            with self._log.open("ab") as log:
                self._processes.append(subprocess.Popen(command, env=surroundings, stdout=log, stderr=log))

    def warm(self, call: Feeds) -> None:
        """Wait until each server has answered.

        Raises:
            RuntimeError: one does not.
        """
        until = time.monotonic() + START_S
        for process, port in zip(self._processes, self.ports, strict=True):
            while True:
                try:
                    asyncio.run(_asked_once(port, body_of(0, begins=True, feeds=call)))
                    break
                except (OSError, EOFError) as error:
                    if process.poll() is not None or time.monotonic() > until:
                        said = (self._log.read_text(errors="replace").strip().splitlines() or [str(error)])[-1]
                        raise RuntimeError(f"it did not start: {said}") from error
                    time.sleep(0.1)

    def cpu_s(self) -> float:
        """Computing time of the servers so far, in seconds."""
        return sum(_cpu_of_tree(process.pid) for process in self._processes)

    def close(self) -> None:
        """End the servers."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class MosecStreams:
    """A client with streams on the servers, each with its own connection and one chunk in flight.

    Args:
        servers: the running servers.
        ends: notified of every chunk.
    """

    def __init__(self, servers: MosecServers, ends: Ends) -> None:
        """Start the loop."""
        self._servers, self._ends = servers, ends
        self._submitted = self._answered = self._opened = 0
        self._free: list[int] = []
        self._fault: BaseException | None = None
        self.connections: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mosec client")
        self._thread.start()

    def open_stream(self) -> "MosecStream":
        """Start a stream; numbers of ended streams are used again."""
        if self._free:
            number = self._free.pop()
        else:
            self._opened += 1
            number = self._opened
        return MosecStream(self, number, self._servers.ports[number % len(self._servers.ports)])

    def submit(self, stream: "MosecStream", feeds: Feeds) -> Number:
        """Send a chunk after those of its stream."""
        self._submitted += 1
        self._loop.call_soon_threadsafe(self._arrived, stream, self._submitted, feeds)
        return Number(self._submitted)

    def closed(self, stream: "MosecStream") -> None:
        """Record that a stream has ended and all its chunks have been answered."""
        self._free.append(stream.number)

    def drain(self) -> None:
        """Wait for all answers, and stop.

        Raises:
            BaseException: the error of a request.
        """
        while self._answered < self._submitted and self._fault is None:
            time.sleep(0.005)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._let_go())
        self._loop.close()
        if self._fault is not None:
            raise self._fault

    async def _let_go(self) -> None:
        """Close all streams and connections after an error."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self.connections:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _arrived(self, stream: "MosecStream", number: int, feeds: Feeds) -> None:
        stream.waiting.append((number, feeds))
        if len(stream.waiting) == 1:
            task = self._loop.create_task(self._send(stream))
            self._tasks.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._fault = task.exception()

    async def _send(self, stream: "MosecStream") -> None:
        """Send all waiting chunks of a stream, one after the other."""
        while stream.waiting:
            number, feeds = stream.waiting[0]
            await stream.ask(feeds)
            now = time.monotonic_ns()
            stream.waiting.popleft()
            self._ends.ended(Request(number, "", "", "", 1, None, None, now, now, None, 0.0), "done", "", now)
            self._answered += 1


class MosecStream:
    """A stream: its number on its server, its connection, and its waiting chunks."""

    def __init__(self, client: MosecStreams, number: int, port: int) -> None:
        """Start without chunks."""
        self.number, self.waiting = number, deque[tuple[int, Feeds]]()
        self._client, self._port, self._begun = client, port, False
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def submit(self, feeds: Feeds) -> Number:
        """Send a chunk: one row of every input that is no state."""
        return self._client.submit(self, feeds)

    def close(self) -> None:
        """Release its number for another stream."""
        self._client.closed(self)

    async def ask(self, feeds: Feeds) -> None:
        """Send a chunk and wait for its answer.

        Raises:
            RuntimeError: the server refuses it.
        """
        if self._connection is None:
            self._connection = await asyncio.open_connection("127.0.0.1", self._port)
            self._client.connections.append(self._connection[1])
        await _exchange(*self._connection, body_of(self.number, begins=not self._begun, feeds=feeds))
        self._begun = True


def body_of(stream: int, *, begins: bool, feeds: Feeds) -> bytes:
    """Return the body of a request."""
    return b"".join([HEADER.pack(stream, begins), *(np.ascontiguousarray(array).tobytes() for array in feeds.values())])


async def _asked_once(port: int, body: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await _exchange(reader, writer, body)
    finally:
        writer.close()
        await writer.wait_closed()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    """Send one request and read its answer over an open connection.

    Raises:
        RuntimeError: the answer is no success.
    """
    writer.write(b"POST /inference HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    lengths = [line.partition(":")[2] for line in head.splitlines() if line.startswith("content-length:")]
    content = await reader.readexactly(int(lengths[0]) if lengths else 0)
    if " 200 " not in head.partition("\r\n")[0]:
        raise RuntimeError(f"mosec answered {head.splitlines()[0]}: {content[:200]!r}")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def _cpu_of_tree(root: int) -> float:
    """Return the computing time of a process and its descendants, in seconds."""
    parents, times = dict[int, int](), dict[int, float]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            pid = int(file.parent.name)
            parents[pid] = int(fields[1])
            times[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    tree: Sequence[int] = [root]
    total = 0.0
    while tree:
        total += sum(times.get(pid, 0.0) for pid in tree)
        tree = [pid for pid, parent in parents.items() if parent in tree]
    return total
