"""Reports the health of a runtime: whether its runs end and succeed, and how requests ended in a drain."""

from collections.abc import Iterable
from dataclasses import dataclass

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.decision import Run

STUCK_NS, STUCK_RATIO = 5_000 * NS_PER_MS, 20
"""Time and multiple of the expected duration above which a run counts as stuck. A queue is stuck if no run is decided
for that time although a lane is free; intended waits take milliseconds."""

FAILURES = 3
"""Number of consecutive failed runs from which the runtime, and not a feed, counts as faulty."""


@dataclass(frozen=True)
class Health:
    """Whether a runtime works.

    Attributes:
        healthy: whether runs end, or no work is queued.
        reason: why it is not healthy; empty if it is.
        queued: requests, or chunks of them, that wait for a run.
        running: runs in flight.
        streams: open streams.
        draining: whether new work is refused.
        observer_fault: the error of an observer, which gets no more events since, or of a callback of `when_done`; else
            empty.
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
    """How the requests ended that a runtime had when it was drained.

    Attributes:
        finished: requests that ended by themselves.
        dropped: numbers of the requests that had not ended at the limit.
        seconds: duration of the drain.
    """

    finished: int
    dropped: tuple[int, ...]
    seconds: float


def fault_of_runs(flying: Iterable[Run], undecided_since: int | None, failures: int, last_fault: str, now: int) -> str:
    """Return what is wrong with the runs of a server, or an empty text.

    Args:
        flying: runs in flight.
        undecided_since: time since which work has waited and no run was decided although a lane was free; else None.
        failures: number of consecutive failed runs, up to the last run.
        last_fault: error message of the last of them.
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
