"""Measures the execution time of every bucket on a fully loaded server, with queueing, states and callers included.

The server is the runtime's own. Its lanes are never idle, because the caller sends the next chunk as soon as one is
answered. A rule takes the place of the scheduler: it runs one bucket after the other, full, on all lanes, and the rows
of a run were in different runs before. A run lasts from the decision to run it until the scheduler learns of its end;
as lanes are never idle, these times cover all of a lane's time.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple

from runtime_lite.bench import Timing, feed_arrays, timing_of
from runtime_lite.executors.executor import ExecutorFactory, make_executor
from runtime_lite.format.manifest import Artifact
from runtime_lite.format.reader import read_bundle
from runtime_lite.model import Model, make_version
from runtime_lite.runtime import MAX_WORKERS, check_count
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import CostTable, key_of
from runtime_lite.scheduling.decision import Decision, Run
from runtime_lite.scheduling.task import Key, ServiceClass, Task
from runtime_lite.serving.refusals import CLOSE_S
from runtime_lite.serving.request import Version
from runtime_lite.serving.server import Server
from runtime_lite.serving.ticket import Ticket

TURN = 5
"""Runs of a bucket on each lane in one turn; several, because a run also pays for work that the one before has left."""


class Fill(NamedTuple):
    """The tasks that fill the rows of one bucket.

    Attributes:
        key: model, graph and the bucket of every axis but that of rows.
        rows: the bucket of the axis of rows.
        tasks: number of tasks that fill it.
        task_rows: rows of each task.
    """

    key: Key
    rows: int
    tasks: int
    task_rows: int


@dataclass
class Turns:
    """A scheduling rule that runs buckets in turn, each with the tasks that have waited longest.

    Attributes:
        fills: the buckets, in the order of their turns.
        lanes: number of runs that may be in flight at once.
        times: durations of all finished runs in nanoseconds, by key and row bucket.
    """

    fills: Sequence[Fill]
    lanes: int
    times: dict[tuple[Key, int], list[int]] = field(init=False)

    def __post_init__(self) -> None:
        """Start with empty queues and without times."""
        self.times = {(fill.key, fill.rows): [] for fill in self.fills}
        self._queues: dict[tuple[Key, int], deque[Task]] = {(f.key, f.task_rows): deque() for f in self.fills}
        self._running: set[int] = set()
        self._decided = 0

    def least_runs(self) -> int:
        """Return the number of finished runs of the bucket that has the fewest."""
        return min(map(len, self.times.values()))

    def submit(self, task: Task, now: int) -> str | None:
        """Queue a task."""
        self._queues[task.key, task.rows].append(task)
        return None

    def refusal(self, task: Task, now: int) -> str | None:
        """Return None: no task is refused."""
        return None

    def decide(self, now: int) -> Decision:
        """Decide to run the bucket whose turn it is, if a lane is free and enough tasks wait to fill it."""
        fill = self.fills[self._decided // (TURN * self.lanes) % len(self.fills)]
        queue = self._queues[fill.key, fill.task_rows]
        if len(self._running) == self.lanes or len(queue) < fill.tasks:
            return Decision(None, [], None)
        self._decided += 1
        run = Run(fill.key, fill.rows, [queue.popleft() for _ in range(fill.tasks)], now, 0)
        self._running.add(id(run))
        return Decision(run, [], None)

    def finished(self, run: Run, now: int, failed: bool = False) -> None:
        """Record the duration of a run; a failure is reported to the sender of the request elsewhere."""
        self._running.remove(id(run))
        self.times[run.key, run.rows].append(now - run.started)

    def cancel(self, task: Task) -> bool:
        """Remove a queued task."""
        self._queues[task.key, task.rows].remove(task)
        return True

    def open_stream(self, number: int, key: Key, service: ServiceClass, period_ns: int) -> str | None:
        """Return None: every stream is admitted."""
        return None

    def close_stream(self, number: int) -> None:
        """Do nothing: the rule keeps no data about streams."""

    def resize(self, lanes: int) -> None:
        """Change the number of lanes."""
        self.lanes = lanes

    def forget(self, model: str) -> None:
        """Do nothing: the rule keeps no data about models."""


def bench_served(
    path: str | os.PathLike[str],
    threads: int,
    workers: int,
    runs: int,
    executors: ExecutorFactory = make_executor,
) -> list[Timing]:
    """Return the times of every bucket of every graph, measured on a full server.

    Args:
        path: bundle directory or `.tar` file.
        threads: threads of one run.
        workers: runs in flight at once.
        runs: timed runs per bucket and worker, at least 1; one untimed run goes before them.
        executors: makes the executor of each graph.

    Raises:
        BadInput: there is nothing at the path, or there are more workers than a runtime may have.
        BundleRefused: the bundle cannot be trusted or read.
        EngineAbsent: an engine is not built, or what runs it is not on this machine.
    """
    check_count("workers", workers, MAX_WORKERS)
    bundle = read_bundle(path)
    try:
        version = make_version(bundle.manifest.name, bundle, threads, True, executors)
    except BaseException:
        bundle.close()
        raise
    buckets = [
        (name, artifact, _fill(version, name, artifact))
        for name, graph in bundle.manifest.graphs.items()
        for artifact in graph.artifacts
    ]
    rule = Turns([fill for _, _, fill in buckets], workers)
    _serve(version, threads, buckets, rule, workers * (runs + 1))
    timings = []
    for name, artifact, fill in buckets:
        times_ms = [ns / NS_PER_MS for ns in rule.times[fill.key, fill.rows]]
        timings.append(timing_of(name, artifact, max(times_ms[:workers]), times_ms[workers:]))
    return timings


def _fill(version: Version, name: str, artifact: Artifact) -> Fill:
    """Return the tasks that fill a bucket: one of all its rows if rows depend on each other, else one per row."""
    runner = version.runners[name]
    graph, alone = runner.graph, runner.batching_fault() is not None
    rows = 1 if graph.batch_axis is None else artifact.sizes[graph.batch_axis]
    key = key_of(version.name, name, graph, artifact.sizes, alone)
    return Fill(key, rows, *((1, rows) if alone else (rows, 1)))


def _serve(
    version: Version, threads: int, buckets: Sequence[tuple[str, Artifact, Fill]], rule: Turns, least: int
) -> None:
    """Keep a server full until every bucket has run at least `least` times; then close the version."""
    pools: dict[tuple[Key, int], tuple[int, str, Artifact]] = {}
    for name, artifact, fill in buckets:
        tasks, *_ = pools.get((fill.key, fill.task_rows), (0,))
        # what runs, what runs next, and what is on its way; one more, so that no run finds the company of one before it
        pools[fill.key, fill.task_rows] = max(tasks, (rule.lanes + 2) * fill.tasks + 1), name, artifact
    server = Server(rule.lanes, sum(count for count, _, _ in pools.values()), rule, CostTable())
    server.add(version, threads, {})
    model = Model(server, version, 0)
    ended: SimpleQueue[tuple[Ticket[Any], Callable[[], Ticket[Any]]]] = SimpleQueue()

    def send(submit: Callable[[], Ticket[Any]]) -> None:
        ticket = submit()
        ticket.when_done(lambda: ended.put((ticket, submit)))

    try:
        for (_, rows), (count, name, artifact) in pools.items():
            for _ in range(count):
                send(_caller(model, name, artifact, rows))
        while rule.least_runs() < least:
            ticket, submit = ended.get()
            ticket.result()
            send(submit)
    finally:
        server.close("bench", model.leave(), CLOSE_S)


def _caller(model: Model, name: str, artifact: Artifact, rows: int) -> Callable[[], Ticket[Any]]:
    """Return a function that submits the next request of a caller; a graph with states gets a stream per caller."""
    graph = model.bundle.manifest.graphs[name]
    feeds = feed_arrays(
        graph, artifact.sizes if graph.batch_axis is None else {**artifact.sizes, graph.batch_axis: rows}
    )
    if not graph.states:
        return lambda: model.submit(feeds, name)
    stream = model.open_stream(name, rows)
    return lambda: stream.submit(feeds)
