"""heard_arguments: every way to read what the command was given is heard, and the name of the program is not."""

import argparse
import copy
import json
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import pytest

from compiler.base.cache.heard_arguments import listening_to_arguments

READS: list[Callable[[], object]] = [
    lambda: sys.argv[1],
    lambda: sys.argv[1:],
    lambda: sys.argv[-1],
    lambda: len(sys.argv),
    lambda: "--fast" in sys.argv,
    lambda: list(sys.argv),
    lambda: tuple(sys.argv),
    lambda: [*sys.argv],
    lambda: " ".join(sys.argv),
    lambda: ["python"] + sys.argv,  # noqa: RUF005 - what is tried
    lambda: sys.argv + ["more"],  # noqa: RUF005 - what is tried
    lambda: sys.argv == ["train.py", "--fast"],
    lambda: sys.argv.copy(),
    lambda: copy.copy(sys.argv),
    lambda: copy.deepcopy(sys.argv),
    lambda: bytes(ForkingPickler.dumps(sys.argv)),  # as processes are spawned
    lambda: str(sys.argv),
    lambda: json.dumps(sys.argv),
    lambda: sorted(sys.argv),
    lambda: list(reversed(sys.argv)),
    lambda: sys.argv.index("--fast"),
    lambda: argparse.ArgumentParser().parse_known_args(),
]


def times_heard(read: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    given, heard = ["train.py", "--fast"], list[None]()
    monkeypatch.setattr(sys, "argv", given)
    restore = listening_to_arguments(lambda: heard.append(None))
    found = read()
    count = len(heard)
    restore()
    assert sys.argv is given
    again = read()
    assert len(heard) == count, "nobody listens any more"
    assert found == again or not isinstance(found, list), "it reads what it would have read"
    return count


@pytest.mark.parametrize("at", range(len(READS)))
def test_arguments_that_are_read(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert times_heard(READS[at], monkeypatch)


def test_the_name_of_the_program_is_nothing_that_a_result_follows_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not times_heard(lambda: sys.argv[0], monkeypatch)
    assert not times_heard(lambda: argparse.ArgumentParser().prog, monkeypatch)


def test_changes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["train.py", "--fast", "rest"]
    monkeypatch.setattr(sys, "argv", given)
    restore = listening_to_arguments(lambda: None)
    sys.argv.remove("--fast")
    restore()
    assert sys.argv is given and given == ["train.py", "rest"]
    restore = listening_to_arguments(lambda: None)
    sys.argv = ["other.py"]
    restore()
    assert sys.argv == ["other.py"]
