"""heard_variables: every way to read an environment variable is heard."""

import os
from collections.abc import Callable

import pytest

from compiler.base.cache.heard_variables import listening_to_variables

posix = pytest.importorskip("posix")

ONE: list[Callable[[], object]] = [
    lambda: os.environ["PATH"],
    lambda: os.getenv("PATH"),
    lambda: os.environb[b"PATH"],
    lambda: "PATH" in os.environ,
    lambda: posix.environ[b"PATH"],
    lambda: posix.environ.get(b"PATH"),
    lambda: b"PATH" in posix.environ,
    lambda: os.path.expandvars("$PATH"),
]

ALL: list[Callable[[], object]] = [
    lambda: dict(os.environ),
    lambda: list(os.environ),
    lambda: os.environ.copy(),
    lambda: list(posix.environ),
    lambda: dict(posix.environ),
    lambda: list(posix.environ.keys()),
    lambda: list(posix.environ.values()),
    lambda: list(posix.environ.items()),
    lambda: posix.environ.copy(),
]


def heard_by(read: Callable[[], object]) -> set[object]:
    heard = set[object]()
    before = posix.environ
    restore = listening_to_variables(heard.add, lambda: heard.add("all"))
    try:
        read()
    finally:
        restore()
    assert posix.environ is before
    count = len(heard)
    read()
    assert len(heard) == count
    return heard


@pytest.mark.parametrize("at", range(len(ONE)))
def test_one_that_is_read(at: int) -> None:
    assert heard_by(ONE[at]) & {"PATH", b"PATH"}


@pytest.mark.parametrize("at", range(len(ALL)))
def test_all_that_are_listed(at: int) -> None:
    assert "all" in heard_by(ALL[at])
