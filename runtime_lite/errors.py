"""Defines the errors of the runtime: whose fault each one is, and the exit code of `python -m runtime_lite`.

    the caller   BadInput        2   a feed, an argument, or the use of something closed
    the bundle   BundleRefused   2   truncated, altered, hostile, or of a version this runtime does not read
    numerics     GateFailed      4   `verify` measured more than the recorded tolerance
    the machine  EngineAbsent    5   the engine is not built, or its device or library is missing
    the machine  ExecutorFailed  5   the backend crashed, hung or ran out of memory
    the load     Overloaded      5   refused when it came in: the queued work takes too long
    the load     Dropped         5   dropped before it was done; the error has the reason
    the load     StreamLost      5   no stream of this name and generation is here; which chunk counted last
    the caller   Cancelled       2   cancelled by its caller
    ours         InternalError   1   a bug of runtime_lite

Messages are one sentence: `<where>: expected <E>, got <G>; <what to do>`.
"""

from pathlib import Path
from typing import ClassVar

FRONT_DOOR = "python build.py" if Path(__file__).parents[1].joinpath("build.py").is_file() else "slipway-build"
"""How the toolchain is started: as a script of its checkout, or as the command that its wheel installs."""


class RuntimeLiteError(Exception):
    """Base of all errors that runtime_lite raises on purpose."""

    exit_code: ClassVar[int] = 1


class BadInput(RuntimeLiteError):
    """The caller's feed or argument is wrong; nothing was run and no state has changed."""

    exit_code = 2


class BundleRefused(RuntimeLiteError):
    """The bundle cannot be trusted or read; none of it is used."""

    exit_code = 2


class GateFailed(RuntimeLiteError):
    """The bundle does not reproduce its recorded outputs on this machine."""

    exit_code = 4


class EngineAbsent(RuntimeLiteError):
    """The bundle is valid, but its engine is not built, or this machine lacks its device, driver or library."""

    exit_code = 5


class _WithReason(RuntimeLiteError):
    """Base of errors that end a request without its caller's fault and have a constant `reason` for programs."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type["_WithReason"], tuple[str, str]]:
        """Let pickle pass both texts to another process."""
        return type(self), (str(self), self.reason)


class ExecutorFailed(_WithReason):
    """A run crashed its process, lacked memory or does not end.

    No state has changed, and the next run gets a new process. A run in this process that does not end keeps its thread;
    closing the runtime then reports it.

    Attributes:
        reason: `crash`, `hang`, `memory`, or `limit` if the system gives no more threads, processes or descriptors.
    """

    exit_code = 5


class Overloaded(_WithReason):
    """The runtime does not admit the request; no part of it was queued.

    Attributes:
        reason: short and constant, as request counts have it.
    """

    exit_code = 5


class Dropped(_WithReason):
    """A request was dropped before it was done; its answer, if there is one, is not delivered.

    Attributes:
        reason: short and constant, as request counts have it.
    """

    exit_code = 5


class StreamLost(_WithReason):
    """A chunk came to a worker where its stream is not, or is in another generation; nothing was run.

    Attributes:
        reason: short and constant.
        last_counted: number of the last chunk that counted, -1 for none; None where that is not known.
    """

    exit_code = 5

    def __init__(self, message: str, reason: str, last_counted: int | None = None) -> None:
        super().__init__(message, reason)
        self.last_counted = last_counted

    def __reduce__(self) -> tuple[type["StreamLost"], tuple[str, str, int | None]]:  # type: ignore[override]
        """Let pickle pass all of it to another process."""
        return type(self), (str(self), self.reason, self.last_counted)


class Cancelled(RuntimeLiteError):
    """The caller cancelled the request."""

    exit_code = 2


class InternalError(RuntimeLiteError):
    """A bug of runtime_lite."""

    exit_code = 1


def show(value: object) -> str:
    """Return a short, printable, one-line text of an untrusted value for a message."""
    try:
        text = " ".join(ascii(value).split())
    except Exception:  # noqa: BLE001 - an object of the caller's whose repr fails
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
