"""Defines the reasons for which the server drops a request, and the errors that its callers get."""

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
"""Seconds that closing waits for runs in flight, unless the caller passes another limit."""

MOST_LIMIT_S = 1e9


class RetiredError(Exception):
    """The version of a request was swapped or unloaded after the caller read it and before the request was queued."""


def overloaded(where: str, reason: str) -> Overloaded:
    """Return the error for a caller whose request or stream the runtime does not admit."""
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
    """Return the error for a caller for whose request the system gives no thread; nothing was queued."""
    return ExecutorFailed(
        f"{where}: expected a thread to serve it, got none: {show(str(error))}; end other threads, or raise the limit "
        "(ulimit -u, or that of the container), and try again",
        "limit",
    )


def still_busy(where: str, limit_s: float, hanging: Sequence[str]) -> ExecutorFailed:
    """Return the error for a caller who closes something while runs go on; `hanging` names what they belong to."""
    return ExecutorFailed(
        f"{where}: expected runs to end within {limit_s:g} s, got {', '.join(hanging)} still at work; it is closed "
        "when they end, or with the process: give a longer limit_s, or load with executors=in_child(), which ends runs "
        "that hang",
        "hang",
    )


def check_seconds(where: str, name: str, value: float) -> None:
    """Refuse a time limit that is not a number of seconds from 0 on.

    Raises:
        BadInput: it is negative, too large or no number.
    """
    if type(value) not in (int, float) or not 0 <= value < MOST_LIMIT_S:
        raise BadInput(f"{where}: expected {name} as seconds from 0 on, got {show(value)}; correct it")
