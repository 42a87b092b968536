"""A server whose threads are moved by hand: the caller says which decided run is made, and when time goes by.

Everything happens in the caller's thread and on a virtual clock, so a seed says all that happens. What a run meets
while it is in flight, other runs included, is what its `hook` does.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from runtime_lite.executors.executor import make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import bucket_name
from runtime_lite.format.reader import Bundle, read_bundle
from runtime_lite.model import Model, make_version
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.decision import Decision
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.serving import server as server_module
from runtime_lite.serving.events import Observer
from runtime_lite.serving.server import Server
from runtime_lite.serving.worker_pool import Worker
from tests.soak.adder import write_adder

Hook = Callable[[Mapping[str, Array]], object]


class Held(Scheduler):
    """The rule, but it decides nothing while it is held, so that what shares a run is known beforehand."""

    held = False

    def decide(self, now: int) -> Decision:
        return Decision(None, [], None) if self.held else super().decide(now)


class Hands:
    """Stands for the threads of a server: what is decided waits here until it is made."""

    def __init__(self, work: Callable[[Any, Worker[Any]], Any], *others: object) -> None:
        self.waiting: list[Any] = []
        self._work = work

    def hand_over(self, work: Any, wished: Worker[Any] | None) -> None:
        self.waiting.append(work)

    def make(self, at: int = 0) -> None:
        """Make one of the runs that wait."""
        following = self._work(self.waiting.pop(at), Worker())
        if following is not None:
            self.waiting.append(following)

    def rest(self, worker: Worker[Any]) -> None:
        """A caller that waits for a run that another one has begun would wait for ever: there is one thread."""
        assert worker.done is None or worker.done(), "a caller waits, and nobody is there to work"

    def ready(self, timer: bool, worker: bool) -> None: ...
    def leave(self, caller: Worker[Any]) -> None: ...
    def dismiss(self, caller: Worker[Any]) -> None: ...
    def wake_at(self, alarm: int | None) -> None: ...
    def ticked(self) -> None: ...
    def unwatched(self) -> None: ...
    def stop(self) -> None: ...
    def left(self, until: float) -> list[str]:
        return []


class Hooked:
    """An executor that calls the puppet's hook before every run, and counts runs."""

    def __init__(self, bundle: Bundle, name: str, threads: int, puppet: "Puppet") -> None:
        self._inner, self._puppet = make_executor(bundle, name, threads), puppet

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self._puppet.runs += 1
        self._puppet.hook(inputs)
        self._inner.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._inner.close()


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="adders")  # goes with the process


@cache
def adder(factor: int = 1) -> Path:
    """The bundle that puppets serve, written once per process."""
    return write_adder(Path(_folder().name, str(factor)), factor)


class Puppet:
    """One model on a server that is moved by hand.

    Attributes:
        server: under test.
        model: of the bundle.
        clock: virtual.
        scheduler: `held` holds it back.
        hook: called before every run, with its feeds.
        runs: how many were made.
        version: the bundle that is served first.
    """

    def __init__(self, path: Path, lanes: int, max_streams: int, observers: Sequence[Observer], finite: bool) -> None:
        costs = CostTable()
        self.clock = VirtualClock()
        self.scheduler = Held(costs, lanes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server_module, "WorkerPool", Hands)
            self.server = Server(lanes, max_streams, self.scheduler, costs, self.clock, observers)
        self.hands: Hands = self.server._workers  # type: ignore[assignment]
        self.hook: Hook = lambda _: None
        self.runs = 0
        self.finite = finite
        self.loaded = 0
        self.version = self.load(path)
        self.model = Model(self.server, self.version, 0)

    def load(self, path: Path) -> Any:
        """Take in a bundle; a run of it costs 10 ms, and hardly more with more rows."""
        self.loaded += 1

        def executors(bundle: Bundle, name: str, threads: int) -> Hooked:
            return Hooked(bundle, name, threads, self)

        version = make_version(f"tiny{self.loaded}", read_bundle(path), 1, self.finite, executors)
        costs = {
            (name, bucket_name(artifact.sizes)): 10 * NS_PER_MS + artifact.sizes["batch"] * NS_PER_MS // 20
            for name, runner in version.runners.items()
            for artifact in runner.graph.artifacts
        }
        self.server.add(version, 1, costs)
        return version

    def pass_ms(self, ms: float) -> None:
        """Let time go by, and what is due then happen."""
        self.clock.advance_to(self.clock() + int(ms * NS_PER_MS))
        self.server.tick()

    def release(self) -> None:
        """Let the scheduler go, and make runs until none waits."""
        self.scheduler.held = False
        self.server.tick()
        while self.hands.waiting:
            self.hands.make()

    @property
    def slots_taken(self) -> int:
        """State slots in use."""
        return self.server._streams.slots_taken


@contextlib.contextmanager
def puppet(
    path: Path | None = None,
    lanes: int = 1,
    max_streams: int = 64,
    observers: Sequence[Observer] = (),
    finite: bool = True,
) -> Iterator[Puppet]:
    """Open a server that is moved by hand, of adders by default; its request counts balance at the end."""
    opened = Puppet(path or adder(), lanes, max_streams, observers, finite)
    yield opened
    opened.hook = lambda _: None
    opened.release()
    opened.model.close()
    opened.server.close("puppet", [], 0.0)
    check_books(opened)


def check_books(opened: Puppet) -> None:
    """Row 28, at the end of every row: nothing is alive, and all that came in has ended once."""
    counts, health = opened.server.request_counts(), opened.server.health()
    assert counts.balanced and counts.live == 0, counts
    assert (health.queued, health.running, health.streams, opened.slots_taken) == (0, 0, 0, 0), health
