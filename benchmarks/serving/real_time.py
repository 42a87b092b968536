"""Measures how many live streams are served without a late chunk: the runtime beside direct calls of ONNX Runtime."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.serving.driven import serve_streams
from benchmarks.serving.planner import served_costs
from runtime_lite import Bundle, Runtime, read_bundle
from runtime_lite.bench import bucket_call
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import initial_state
from runtime_lite.executors.executor import make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.load_test.arrivals import Traffic, arrivals_of
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Ends, Source, drive
from runtime_lite.load_test.findings import Served
from runtime_lite.scheduling.task import CHUNK
from runtime_lite.serving.events import Request

Trial = Callable[[int], Sequence[Served]]


def measure_real_time(path: Path, name: str, lanes: int, period_s: float, seconds: float) -> list[dict[str, Any]]:
    """Return the most streams by contender with which every chunk was answered before the next one came.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once, of one thread each, for all contenders.
        period_s: audio of a chunk.
        seconds: of each trial.
    """
    one_row_ns = min(spread.p50 for rows in served_costs(path, name, lanes).values() for spread in rows.values())
    about = max(round(lanes * period_s * 1e9 / one_row_ns), 2)

    def traffic(streams: int) -> Traffic:
        return Traffic(seconds, streams, chunks=50, period_s=period_s)

    def direct(shared: bool) -> int:
        with read_bundle(path) as bundle, contextlib.closing(_Sessions(bundle, name, shared=shared)) as sessions:
            return most_in_time(lambda streams: _direct(path, name, lanes, traffic(streams), sessions), period_s, about)

    def served(streams: int) -> Sequence[Served]:
        service = CHUNK._replace(soft_ms=period_s * 1e3)
        return serve_streams(path, name, lanes, traffic(streams), 0, service)[0]

    contenders: dict[str, Callable[[], int]] = {
        "one session per stream": lambda: direct(shared=False),
        "one session for all, no batches": lambda: direct(shared=True),
        "runtime_lite": lambda: most_in_time(served, period_s, about),
    }
    found = {each: measure() for each, measure in contenders.items()}
    return [
        {
            "contender": each,
            "streams": most,
            **{f"to {other}": f"{most / max(found[other], 1):.2f}" for other in list(found)[:2]},
        }
        for each, most in found.items()
    ]


def most_in_time(trial: Trial, period_s: float, about: int) -> int:
    """Return the most streams without a late chunk, searched from half of `about` on; late trials are repeated."""

    def holds(streams: int) -> bool:
        return any(all(_in_time(each, period_s) for each in trial(streams)) for _ in range(2))

    good, bad = 0, max(about // 2, 1)
    while holds(bad):
        good, bad = bad, bad + max(bad // 2, 1)
    while bad - good > max(1, good // 20):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _in_time(served: Served, period_s: float) -> bool:
    return served.outcome == "done" and served.latency_ms <= period_s * 1e3


class _Number(NamedTuple):
    number: int


class _Sessions:
    """Warm sessions of one row: one for all streams, or one per stream, which later streams use again."""

    def __init__(self, bundle: Bundle, name: str, *, shared: bool) -> None:
        self._bundle, self._name, self._shared = bundle, name, shared
        self._graph = bundle.manifest.graphs[name]
        self._opened: list[GraphRunner] = []
        self._idle: list[GraphRunner] = []

    def reserve(self, streams: int) -> None:
        """Open the sessions of some streams, and a few for streams that start while others end."""
        while len(self._opened) < (1 if self._shared else streams + max(streams // 10, 4)):
            self._idle.append(self._open())

    def take(self) -> GraphRunner:
        """Return the session of a new stream."""
        if self._shared:
            return self._opened[0]
        return self._idle.pop() if self._idle else self._open()

    def give_back(self, runner: GraphRunner) -> None:
        """Take back the session of an ended stream."""
        self._idle.append(runner)

    def _open(self) -> GraphRunner:
        runner = GraphRunner(self._name, self._graph, make_executor(self._bundle, self._name, 1), check_finite=True)
        smallest = min(self._graph.artifacts, key=lambda artifact: sum(artifact.sizes.values()))
        bucket_call(runner, smallest)()
        self._opened.append(runner)
        return runner

    def close(self) -> None:
        for runner in self._opened:
            runner.executor.close()


class _DirectStream:
    """A stream whose steps call a session on threads of a pool; its chunks keep their order."""

    def __init__(self, direct: "_Direct", sessions: _Sessions) -> None:
        self._direct, self._sessions = direct, sessions
        self._runner = sessions.take()
        self._state = initial_state(self._runner.graph, 1)
        self._turn = threading.Lock()

    def submit(self, feeds: Mapping[str, Array]) -> _Number:
        return self._direct.submit(lambda: self._step(self._runner.check("push", feeds)))

    def _step(self, feed: Feed) -> None:
        with self._turn:
            _, self._state = self._runner.step(feed, self._state)

    def close(self) -> None:
        self._sessions.give_back(self._runner)


class _Direct:
    """A first-come pool of threads, which notifies of the end of each call."""

    def __init__(self, lanes: int, ends: Ends) -> None:
        self._pool = ThreadPoolExecutor(lanes)
        self._ends = ends
        self._count = 0

    def submit(self, work: Callable[[], None]) -> _Number:
        self._count += 1
        number, now = self._count, time.monotonic_ns()
        told = Request(number, "", "", "", 1, None, None, now, now, None, 0.0)

        def run() -> None:
            work()
            self._ends.ended(told, "done", "", time.monotonic_ns())

        self._pool.submit(run)
        return _Number(number)

    def drain(self) -> None:
        """Wait for all calls."""
        self._pool.shutdown()


def _direct(path: Path, name: str, lanes: int, traffic: Traffic, sessions: _Sessions) -> Sequence[Served]:
    """Run every chunk alone."""
    ends = Ends()
    direct = _Direct(lanes, ends)
    with Runtime() as runtime:
        feeds = recorded_feeds(runtime.load(path), name)
    sessions.reserve(traffic.streams)
    source = Source(feeds, lambda _: _Number(0), lambda: _DirectStream(direct, sessions))
    return drive(arrivals_of(traffic, 0), {"stream": source}, direct.drain, ends)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
