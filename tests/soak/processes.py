"""Rows 31 to 33: processes that end, are forked, or are given no more threads and descriptors, with work in flight."""

import json
import subprocess
import sys
from pathlib import Path

from tests.soak.at_work import ENDS, LIMIT_S, end_of
from tests.soak.puppet import adder
from tests.soak.row import Figures

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = [sys.executable, "-m", "tests.soak.at_work"]


def _run(what: str, number: int) -> "subprocess.CompletedProcess[str]":
    command = [*SCRIPT, what, str(number), str(adder())]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * LIMIT_S, check=False)


def exits(size: int, timed: bool) -> Figures:
    """Row 31: `size` scripts that close nothing end, in all ways in turn, with callers of some kinds at work."""
    found = dict.fromkeys(("aborts", "hung", "other exit codes", "said more", "wrong answers"), 0)
    for seed in range(size):
        try:
            done = _run("ends", seed)
        except subprocess.TimeoutExpired:
            found["hung"] += 1
            continue
        code, last = ENDS[end_of(seed)]
        if done.returncode != code:
            found["aborts" if done.returncode < 0 else "other exit codes"] += 1
        found["said more"] += (done.stderr.splitlines() or [""])[-1] != last or "Exception ignored" in done.stderr
        found["wrong answers"] += done.stdout != "end\n"
        if done.returncode != code or done.stdout != "end\n":
            print(f"seed {seed}: exit code {done.returncode}", done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return found


def forks(size: int, timed: bool) -> Figures:
    """Row 32: `size` forks beside callers of all kinds; each child uses what it was born with, or opens its own."""
    return _counted("forks", size, ("hung", "ended by a signal", "of another name", "wrong answers"))


def limits(size: int, timed: bool) -> Figures:
    """Row 33: `size` runtimes, new ones and such that have served, meet the limits, and serve again behind them."""
    return _counted(
        "limits", size, ("without a name", "not served again", "lost", "wrong answers", "files more", "threads more")
    )


def _counted(what: str, size: int, never: tuple[str, ...]) -> Figures:
    """What the script has counted, with what must not be."""
    done = _run(what, size)
    print(done.stderr, file=sys.stderr)
    assert done.returncode == 0, f"{what}: exit code {done.returncode}"
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return dict.fromkeys(never, 0.0) | found
