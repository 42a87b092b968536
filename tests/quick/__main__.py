"""Runs the tests that stand nearest to what changed, nearest first, until a time is over: `make quick`.

    python -m tests.quick [--since COMMIT] [--seconds S] [--list]

What changed is what the working tree has beside the commit, files that are not tracked included. `nearest.py` says
which tests stand near; `MOST` files of them are run. Tests that would begin when the time is over are skipped, and
counted at the end; `make test` runs everything, the rules of the house and the pages too, which no import reaches.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.quick import within
from tests.quick.nearest import nearest_tests

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 75.0
"""With lint and types of one change, it is two minutes."""

MOST = 60
"""Files of tests that are collected; to collect all takes as long as they may run."""

SHOWN = 12
"""Files of tests that are named at the beginning."""


def changed_files(root: Path, since: str) -> list[Path]:
    """Files that differ from a commit, those that are not tracked included, relative to the root.

    Raises:
        SystemExit: there is no such commit, or no repository; with git's words.
    """
    listed = []
    for command in (["diff", "--name-only", since], ["ls-files", "--others", "--exclude-standard"]):
        ended = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"quick: expected a commit that git knows, got {since!r}: {ended.stderr.strip()}")
        listed += ended.stdout.split("\n")
    return sorted({Path(name) for name in listed if name})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return pytest's exit code, 0 where no test stands near."""
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description=__doc__.splitlines()[0])
    parser.add_argument("--since", default="HEAD", help="commit to compare with (default HEAD)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no test begins later (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="name the files of tests, nearest first, and run none")
    options = parser.parse_args(arguments)
    changed = changed_files(ROOT, options.since)
    tests = nearest_tests(ROOT, changed)
    shown = list(tests.items()) if options.list else list(tests.items())[:SHOWN]
    print(f"{len(changed)} files changed since {options.since}; {len(tests)} files of tests stand near, nearest first:")
    for path, distance in shown:
        print(f"  {distance}  {path}")
    if len(shown) < len(tests):
        print(f"  and {len(tests) - len(shown)} more")
    if options.list or not tests:
        return 0
    return within.run(ROOT, [str(path) for path in list(tests)[:MOST]], options.seconds)


if __name__ == "__main__":
    sys.exit(main())
