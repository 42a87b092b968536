"""Ends a command with an exit code, and with one sentence where the caller can mend what went wrong."""

import os
import sys
from collections.abc import Callable

from runtime_lite.errors import BadInput, InternalError, RuntimeLiteError
from runtime_lite.format.atomic_file import NO_ROOM

INTERRUPTED = 130
STDOUT_CLOSED = "standard output: expected an open one, got a closed one; redirect it, to /dev/null perhaps"


def exit_code_of(
    main: Callable[[], int | None], interrupted: str, errors: tuple[type[Exception], ...] = (RuntimeLiteError,)
) -> int:
    """Run a command and return its exit code: what `main` returns, 0 for nothing, or that of what it raises.

    What is raised as a bug, or is of no kind that is known here, comes through with its traceback.

    Args:
        main: the command. An OSError is a file, a program or a place on a disk that it needs and has not got.
        interrupted: what Ctrl-C has left, in words.
        errors: errors with an `exit_code`, whose text says what to do.
    """
    if sys.stdout is None:
        return _told(f"error: {STDOUT_CLOSED}", BadInput.exit_code)
    try:
        code = main() or 0
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout()
        return 0
    except OSError as error:
        return _told(f"error: {_sentence_of(error)}", BadInput.exit_code)
    except KeyboardInterrupt:
        return _told(interrupted, INTERRUPTED)
    except errors as error:
        code = getattr(error, "exit_code", InternalError.exit_code)
        if code == InternalError.exit_code:
            raise
        return _told(f"error: {error}", code)
    return code


def leave_stdout() -> None:
    """Let what is still buffered go nowhere, at the end of the process, too: its reader left, or its disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def place_of(error: OSError) -> str:
    """What could not be read or written; what is printed, and what has no name, goes without one."""
    written = error.filename2 or error.filename  # of two, the second is what was written
    if written is not None or error.errno not in NO_ROOM:
        return str(written or "")
    try:
        sys.stdout.flush()
    except OSError:
        leave_stdout()
    return "standard output or a temporary file"


def _sentence_of(error: OSError) -> str:
    """What the system says, and where; what we raise ourselves is a sentence already."""
    if error.strerror is None:
        return str(error)
    place = place_of(error)
    return f"{place}{': ' if place else ''}{error.strerror}; check the path, permissions and free space"


def _told(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
