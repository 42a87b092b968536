"""A server under test: one tiny bundle, a scheduler that can be held back, an executor that can be hooked."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite.errors import InternalError
from runtime_lite.executors.executor import make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import bucket_name
from runtime_lite.format.reader import Bundle, read_bundle
from runtime_lite.model import Model, make_version
from runtime_lite.scheduling.clock import NS_PER_MS, Clock
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.decision import Decision
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.serving.events import Observer
from runtime_lite.serving.server import Server
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import WIDTH, random_chunks

Sizes = Mapping[str, int]
Hook = Callable[[Sizes, Mapping[str, Array]], object]


class Held(Scheduler):
    """The rule, but it decides nothing while it is held, so that what shares a run is known beforehand."""

    held = False

    def decide(self, now: int) -> Decision:
        return Decision(None, [], None) if self.held else super().decide(now)


class Hooked:
    """An executor that calls a hook before every run, and counts rows."""

    def __init__(self, bundle: Bundle, name: str, threads: int, place: "Place") -> None:
        self._inner, self._place = make_executor(bundle, name, threads), place

    def run(self, sizes: Sizes, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self._place.runs.append(dict(sizes))
        self._place.hook(sizes, inputs)
        self._inner.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._place.closed += 1
        self._inner.close()


class Place:
    """A server with one model.

    Attributes:
        server: under test.
        model: of the bundle.
        scheduler: `held` holds it back; `release` lets it go.
        hook: called before every run.
        runs: sizes of every run, in order.
        closed: executors that were closed.
    """

    def __init__(
        self,
        path: Path,
        lanes: int,
        clock: Clock,
        observers: Sequence[Observer],
        max_streams: int,
        check_finite: bool,
    ) -> None:
        costs = CostTable()
        self.scheduler = Held(costs, lanes)
        self.server = Server(lanes, max_streams, self.scheduler, costs, clock, observers)
        self.hook: Hook = lambda *_: None
        self.runs: list[dict[str, int]] = []
        self.closed = 0
        self._check_finite = check_finite
        self._count = 0
        self.model = Model(self.server, self.load(path), 0)

    def load(self, path: Path) -> Any:
        self._count += 1

        def executors(bundle: Bundle, name: str, threads: int) -> Hooked:
            return Hooked(bundle, name, threads, self)

        version = make_version(f"tiny{self._count}", read_bundle(path), 1, self._check_finite, executors)
        rows = {
            (name, bucket_name(artifact.sizes)): (20 + artifact.sizes["batch"]) * NS_PER_MS // 2
            for name, runner in version.runners.items()
            for artifact in runner.graph.artifacts
        }
        self.server.add(version, 1, rows)  # a full bucket costs hardly more than one row, whatever this machine does
        return version

    def release(self) -> None:
        self.scheduler.held = False
        self.server.tick()


@contextlib.contextmanager
def serve(
    path: Path,
    lanes: int = 1,
    clock: Clock = time.monotonic_ns,
    observers: Sequence[Observer] = (),
    max_streams: int = 64,
    check_finite: bool = True,
) -> Iterator[Place]:
    """Open a place, and see that its request counts balance whatever the test did."""
    place = Place(path, lanes, clock, observers, max_streams, check_finite)
    try:
        yield place
    finally:
        place.scheduler.held = False
        place.hook = lambda *_: None
        place.model.close()
        place.server.close("test", [], PATIENCE_S)
    balance = place.server.request_counts()
    assert balance.balanced and balance.live == 0
    assert place.server.health().streams == 0 == place.server._streams.slots_taken
    assert place.server.health().running == 0 == place.server.health().queued


@dataclass
class Gate:
    """Stops a run until it is opened; an executor's hook."""

    inside: Any
    leave: Any

    def __call__(self, *_: object) -> None:
        self.inside.set()
        assert self.leave.wait(PATIENCE_S)


def gate() -> Gate:
    """A closed gate."""
    return Gate(threading.Event(), threading.Event())


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Start a call in a thread of its own."""
    thread = threading.Thread(target=call)
    thread.start()
    return thread


MARK = 77.0


def feed(seed: int, rows: int = 1) -> dict[str, Array]:
    """A feed of the graph `plain`."""
    return {"x": random_chunks(1, rows, seed)[0], "shift": np.arange(rows) + seed}


def poisoned(rows: int = 1) -> dict[str, Array]:
    """A feed of the graph `plain` with which `fail_on_mark` fails."""
    return {"x": np.full((rows, 3, WIDTH), MARK, np.float32), "shift": np.zeros(rows, np.int64)}


def fail_on_mark(sizes: Sizes, feeds: Mapping[str, Array]) -> None:
    """A hook: runs fail in which a poisoned feed is."""
    if (feeds["x"] == MARK).any():
        raise InternalError("poisoned")


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    pause, until = threading.Event(), time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        pause.wait(0.0005)


def close(got: Any, expected: Any) -> bool:
    """Whether outputs are the same but for the rounding of another bucket; rows of other requests are far away."""
    return np.shape(got) == np.shape(expected) and np.allclose(got, expected, rtol=0.0, atol=2e-6)


def assert_close(got: Any, expected: Any) -> None:
    """See `close`."""
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=2e-6)
