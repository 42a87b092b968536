"""Reports the health of a runtime: whether its runs end and succeed, and what a drain did with its work."""

from collections.abc import Iterable
from dataclasses import dataclass

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.decision import Run

STUCK_NS, STUCK_RATIO = 5_000 * NS_PER_MS, 20
"""A run is stuck when it takes this long, and this many times longer than expected; a queue, when nothing is decided
for so long though a lane is free: what waits on purpose does for milliseconds."""

FAILURES = 3
"""Number of runs that fail one after the other from which the runtime, and not a feed, is at fault."""


@dataclass(frozen=True)
class Health:
    """Whether a runtime does its work.

    Attributes:
        healthy: runs end, or there is nothing to do.
        reason: why not; empty when it is.
        queued: requests, or chunks of them, that wait for a run.
        running: runs in flight.
        streams: open streams.
        draining: whether new work is refused.
        observer_fault: what an observer did wrong that is not asked any more, or a call of `when_done`; else empty.
    """

    healthy: bool
    reason: str
    queued: int
    running: int
    streams: int
    draining: bool
    observer_fault: str


@dataclass(frozen=True)
class DrainReport:
    """What became of what was there when a runtime was drained.

    Attributes:
        finished: requests that ended by themselves.
        dropped: numbers of the requests that the limit cut off.
        seconds: how long it took.
    """

    finished: int
    dropped: tuple[int, ...]
    seconds: float


def fault_of_runs(flying: Iterable[Run], undecided_since: int | None, failures: int, last_fault: str, now: int) -> str:
    """Return what is wrong with the runs of a server, or nothing.

    Args:
        flying: runs in flight.
        undecided_since: since when work waits beside a free lane, and nothing was decided; None while that is not so.
        failures: runs that failed one after the other, up to the last one.
        last_fault: what the last of them said.
        now: nanoseconds of the server's clock.
    """
    reason = ""
    for run in flying:
        took = now - run.started
        if took > max(STUCK_NS, STUCK_RATIO * run.expected_ns):
            reason = f"a run of {run.key.graph!r} takes {took / 1e9:.1f} s"
    if undecided_since is not None and now - undecided_since > STUCK_NS:
        reason = f"work has waited for {(now - undecided_since) / 1e9:.1f} s beside a free lane, and no run was decided"
    if failures >= FAILURES:
        reason = f"the last {failures} runs failed: {last_fault}"
    return reason
