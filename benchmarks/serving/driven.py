"""The runtime as a contender: a runtime that gets recorded requests at their times."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from runtime_lite import Model, Runtime
from runtime_lite.load_test.arrivals import Arrival, Kind, Traffic, arrivals_of
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Ends, Source, drive
from runtime_lite.load_test.findings import Served
from runtime_lite.scheduling.task import ServiceClass


def serve(
    path: Path,
    lanes: int,
    arrivals: Sequence[Arrival],
    kind: Kind,
    source_of: Callable[[Model], Source],
    drain_s: float,
    wait: Callable[[float], object] = time.sleep,
) -> tuple[list[Served], Ends]:
    """Send requests of one kind to a runtime; return how they ended, and its runs.

    Args:
        path: bundle.
        lanes: runs at once, of one thread each.
        arrivals: planned requests in the order of time.
        kind: kind of all of them.
        source_of: returns their source for a warm model.
        drain_s: seconds that requests may take after the last arrival.
        wait: waits for a number of seconds.

    Raises:
        RuntimeError: a run has failed: then there are no figures.
    """
    ends = Ends()
    with running(path, lanes, ends) as (runtime, model):
        served = drive(arrivals, {kind: source_of(model)}, lambda: runtime.drain(drain_s), ends, wait=wait)
    return served, ends


@contextlib.contextmanager
def running(path: Path, lanes: int, ends: Ends) -> Iterator[tuple[Runtime, Model]]:
    """Yield a runtime with an observer of every request, and its warm model.

    Raises:
        RuntimeError: a run has failed: then there are no figures.
    """
    with Runtime(workers=lanes, observers=[ends]) as runtime:
        yield runtime, runtime.load(path, warm_up=True)
    faults = [run.fault for run in ends.executions if run.fault is not None]
    if faults:
        raise RuntimeError(f"{path}: {len(faults)} runs have failed, the first as {faults[0]}")


def serve_streams(
    path: Path, name: str, lanes: int, traffic: Traffic, seed: int, service: ServiceClass, *, announced: bool = False
) -> tuple[list[Served], Ends]:
    """Send live streams of a bundle's golden chunks to a runtime.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once, of one thread each.
        traffic: traffic of streams only.
        seed: seed of their arrivals.
        service: service class of the chunks.
        announced: whether streams are opened with their period, and so may be refused.
    """
    period_ms = traffic.period_s * 1e3 if announced else None
    return serve(
        path,
        lanes,
        arrivals_of(traffic, seed),
        "stream",
        lambda model: live_streams(model, name, service, period_ms),
        traffic.seconds,
    )


def live_streams(model: Model, name: str, service: ServiceClass, period_ms: float | None = None) -> Source:
    """Return a source of streams of a graph with states, with its recorded chunks."""
    return Source(
        recorded_feeds(model, name),
        lambda feeds: model.submit(feeds, name),
        lambda: model.open_stream(name, service=service, period_ms=period_ms),
    )
