"""How a long command of an example ends: a file or a program that is missing is a message, and so is Ctrl-C."""

import sys
from collections.abc import Callable
from typing import NoReturn

MISTAKE, INTERRUPTED = 2, 130
"""Exit codes, as `build.py` has them."""


def run(main: Callable[[], None]) -> NoReturn:
    """End the process as `main` ended: 0, or 2 or 130 with one sentence; what else is raised is a bug, and a traceback.

    Args:
        main: raises OSError where a file or a program that it needs is not there, or cannot be written.
    """
    try:
        main()
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _tell(f"{place}{error.strerror or error}", MISTAKE)
    except KeyboardInterrupt:
        _tell("interrupted; repeat the command to go on", INTERRUPTED)
    sys.exit(0)


def _tell(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
