"""A run of tests in a given order that ends in time: a plugin of pytest, in its workers too, skips what begins late."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

UNTIL = "SLIPWAY_TESTS_UNTIL"
"""The variable that tells workers when: seconds of the clock that all processes share."""

REASON = "the time is over"


def run(root: Path, files: Sequence[str], seconds: float) -> int:
    """Run files of tests in their order on two processes; return pytest's exit code.

    Args:
        root: of the source tree.
        files: relative to it.
        seconds: no test begins later.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "load",
        "--maxschedchunk",
        "4",
        "-p",
        __name__,
        *files,
    ]
    return subprocess.run(
        command, cwd=root, check=False, env=os.environ | {UNTIL: str(time.time() + seconds)}
    ).returncode


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that would begin late."""
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip(REASON)
