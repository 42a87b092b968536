"""Measures rows per second if each stream sends its next chunk as soon as it has an answer.

Contenders (`contenders.py`) take turns, each on a server that has just started. One thread sends for all streams of a
contender; its computing time counts, as does that of a contender's other processes. The first quarter of a turn, in
which memory is new, is left out.
"""

import queue
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import command
from benchmarks.serving.contenders import CHUNKS, OURS, QUEUE, Contender, Server, contenders, rows_of_absent
from benchmarks.serving.planner import costs_as_served
from benchmarks.serving.rounds import in_turns, ratios, spread
from runtime_lite.load_test.drive import Ends, OpenStream
from runtime_lite.serving.events import Outcome, Request

STREAMS = (1, 4, 16, 48, 64)

LEFT_OUT = 0.25
"""Of a turn, from its begin."""

ANSWER_S = 60.0
"""A server that is silent for so long answers no more."""


class Figures(NamedTuple):
    """Results of one turn of one contender."""

    rows_per_s: float
    rows_per_cpu_s: float
    p50_ms: float
    p99_ms: float


def measure_closed_loop(
    path: Path, name: str, lanes: int, rounds: int, seconds: float, counts: Sequence[int] = STREAMS
) -> list[dict[str, Any]]:
    """Return throughput and latency by number of streams and contender; ratios are to the queue.

    Args:
        path: bundle.
        name: graph with states, whose file leaves rows open.
        lanes: runs at once, of one thread each, for all contenders.
        rounds: number of turns.
        seconds: duration of each turn.
        counts: numbers of streams.
    """
    found = []
    with costs_as_served(path, lanes) as measured, contenders(measured, name, lanes) as (there, absent):
        for streams in counts:
            measures = {each: partial(_turn, each, there[each], streams, seconds) for each in there}
            turns = in_turns(measures, rounds)
            found += [_row(streams, each, turns) for each in turns]
    return found + rows_of_absent(found[0], absent)


def _row(streams: int, contender: str, turns: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    mine, theirs = turns[contender], turns[QUEUE]
    best = [min(each.p50_ms for each in others) for others in zip(
        *(turns[each] for each in turns if each != OURS), strict=True)]  # fmt: skip
    return {
        "streams": streams,
        "contender": contender,
        "rows per s": spread([each.rows_per_s for each in mine], 0),
        "rows per CPU s": spread([each.rows_per_cpu_s for each in mine], 0),
        "p50, ms": spread([each.p50_ms for each in mine], 1),
        "p99, ms": spread([each.p99_ms for each in mine], 1),
        "rows per s to the queue": spread(
            ratios([each.rows_per_s for each in mine], [each.rows_per_s for each in theirs])
        ),
        "rows per CPU s to it": spread(
            ratios([each.rows_per_cpu_s for each in mine], [each.rows_per_cpu_s for each in theirs])
        ),
        "p50 to the best other": spread(ratios([each.p50_ms for each in mine], best)),
    }


class _Heard(Ends):
    """Ends of requests that wake the sender."""

    def __init__(self) -> None:
        """Start without ends."""
        super().__init__()
        self.answered: queue.SimpleQueue[tuple[int, Outcome]] = queue.SimpleQueue()

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        """Pass on the number of the request."""
        self.answered.put((request.number, outcome))


class _Sender:
    """A stream with one chunk in flight at a time; after the last recorded chunk it starts again."""

    def __init__(self, server: Server) -> None:
        self._open_stream, self._feeds = server.source.open_stream, server.source.feeds
        self._stream: OpenStream | None = None
        self._at = self.sent = 0

    def send(self) -> int:
        """Send the next chunk and return its number."""
        if self._stream is None or self._at == CHUNKS:
            self.close()
            assert self._open_stream is not None, "streams"
            self._stream, self._at = self._open_stream(), 0
        feeds = self._feeds[self._at % len(self._feeds)]
        self._at, self.sent = self._at + 1, time.perf_counter_ns()
        return self._stream.submit(feeds).number

    def close(self) -> None:
        """End the stream."""
        if self._stream is not None:
            self._stream.close()


class _Loop:
    """Streams that send without end."""

    def __init__(self, server: Server, heard: _Heard, streams: int) -> None:
        """Send the first chunk of each stream."""
        self._heard, self.senders = heard, [_Sender(server) for _ in range(streams)]
        self._on_way = {sender.send(): sender for sender in self.senders}

    def run(self, until: float) -> list[float]:
        """Send a chunk after each answer until a time of `time.perf_counter`; return the latencies in ms.

        Raises:
            RuntimeError: a chunk has no answer.
        """
        took_ms = list[float]()
        while time.perf_counter() < until:
            try:
                number, outcome = self._heard.answered.get(timeout=ANSWER_S)
            except queue.Empty:
                raise RuntimeError(f"expected an answer within {ANSWER_S:g} s, got none") from None
            if outcome != "done":
                raise RuntimeError(f"expected an answer to each chunk, got {outcome!r}")
            sender = self._on_way.pop(number)
            took_ms.append((time.perf_counter_ns() - sender.sent) / 1e6)
            self._on_way[sender.send()] = sender
        return took_ms


def _turn(name: str, contender: Contender, streams: int, seconds: float) -> Figures:
    with command.contender(name):
        return figures_of(contender, streams, seconds)


def figures_of(contender: Contender, streams: int, seconds: float) -> Figures:
    """Run one turn and return its results.

    Raises:
        RuntimeError: a chunk has no answer.
    """
    heard = _Heard()
    with contender.start(heard) as server:
        began = time.perf_counter()
        loop = _Loop(server, heard, streams)
        early_ms = loop.run(began + LEFT_OUT * seconds)
        counted, used_s = time.perf_counter(), time.process_time() + contender.others_s()
        took_ms = loop.run(began + seconds) or early_ms
        wall_s, used_s = time.perf_counter() - counted, time.process_time() + contender.others_s() - used_s
        server.drain()
        for sender in loop.senders:
            sender.close()
    p50, p99 = np.percentile(took_ms, (50, 99))
    return Figures(len(took_ms) / wall_s, len(took_ms) / max(used_s, 1e-9), float(p50), float(p99))
