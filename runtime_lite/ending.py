"""Ends a command with an exit code, and prints one sentence where the caller can correct the fault."""

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
    """Run a command and return its exit code: the result of `main`, 0 for None, or the code of the error it raises.

    An error with the exit code of a bug, or of a type not listed in `errors`, is raised again and shows its traceback.

    Args:
        main: the command. An OSError that it raises means that a file, a program or disk space is missing.
        interrupted: the sentence to print after Ctrl-C; it says what the command has left behind.
        errors: types of errors that have an `exit_code` and whose message says what to do.
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
    """Send the rest of standard output to the null device, because its reader has left or its disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def place_of(error: OSError) -> str:
    """Return the name of the file that an error is about; empty if unknown, standard output if the disk is full."""
    written = error.filename2 or error.filename  # of two, the second is what was written
    if written is not None or error.errno not in NO_ROOM:
        return str(written or "")
    try:
        sys.stdout.flush()
    except OSError:
        leave_stdout()
    return "standard output or a temporary file"


def _sentence_of(error: OSError) -> str:
    """Return the message to print for an error: the system's text with the file name, or our own text."""
    if error.strerror is None:
        return str(error)
    place = place_of(error)
    return f"{place}{': ' if place else ''}{error.strerror}; check the path, permissions and free space"


def _told(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
