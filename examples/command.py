"""Ends a long command of an example: a missing file or program, or Ctrl-C, is one sentence and an exit code."""

import sys
from collections.abc import Callable
from typing import NoReturn

from runtime_lite.ending import exit_code_of


def run(main: Callable[[], None]) -> NoReturn:
    """Run `main` and end the process with an exit code of `build.py`, and one sentence if it is not 0.

    Args:
        main: raises OSError if a file or program that it needs is missing, or a file cannot be written.
    """
    sys.exit(exit_code_of(main, "interrupted; repeat the command to go on"))
