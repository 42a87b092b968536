"""How a long command of an example ends: a file or a program that is missing is a message, and so is Ctrl-C."""

import sys
from collections.abc import Callable
from typing import NoReturn

from runtime_lite.ending import exit_code_of


def run(main: Callable[[], None]) -> NoReturn:
    """End the process as `main` ended: with an exit code of `build.py`, and one sentence if that is not 0.

    Args:
        main: raises OSError where a file or a program that it needs is not there, or cannot be written.
    """
    sys.exit(exit_code_of(main, "interrupted; repeat the command to go on"))
