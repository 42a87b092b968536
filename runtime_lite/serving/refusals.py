"""Defines the reasons for which the server drops a request: short constant texts, which are counted."""

from collections.abc import Sequence

from runtime_lite.errors import BadInput, ExecutorFailed, Overloaded, show

MODEL_CLOSED = "model closed"
LOST = "a chunk before it was lost"
LATE = "late"
SLOW = "slow reader"
IDLE = "idle"
FORKED = "forked at work"
EXITING = "the process ends"

CLOSE_S = 60.0
"""Closing waits so long for runs in flight, unless the caller says otherwise."""

MOST_LIMIT_S = 1e9


class RetiredError(Exception):
    """A version was swapped or unloaded between the caller's look at it and the queue."""


def overloaded(where: str, reason: str) -> Overloaded:
    """Return what a caller gets who is refused for want of room."""
    if reason == FORKED:
        return Overloaded(
            f"{where}: expected a runtime of this process, or one at rest with one thread per run when the process was "
            "forked, got one at work or with more threads; open a Runtime behind the fork",
            reason,
        )
    return Overloaded(
        f"{where}: expected a runtime with room, got one without: {reason}; try again later, or use another runtime",
        reason,
    )


def no_thread(where: str, error: RuntimeError) -> ExecutorFailed:
    """Return what a caller gets for whom the system has no thread; nothing was taken."""
    return ExecutorFailed(
        f"{where}: expected a thread to serve it, got none: {show(str(error))}; end other threads, or raise the limit "
        "(ulimit -u, or that of the container), and try again",
        "limit",
    )


def still_busy(where: str, limit_s: float, hanging: Sequence[str]) -> ExecutorFailed:
    """Return what a caller gets who closes something that does not come to rest, by the names of what hangs."""
    return ExecutorFailed(
        f"{where}: expected runs to end within {limit_s:g} s, got {', '.join(hanging)} still at work; it is closed "
        "when they end, or with the process: give a longer limit_s, or load with executors=in_child(), which ends runs "
        "that hang",
        "hang",
    )


def check_seconds(where: str, name: str, value: float) -> None:
    """Refuse a limit of a wait that is no time.

    Raises:
        BadInput: it is no number of seconds from 0 on.
    """
    if type(value) not in (int, float) or not 0 <= value < MOST_LIMIT_S:
        raise BadInput(f"{where}: expected {name} as seconds from 0 on, got {show(value)}; correct it")
