"""What is taken while a session is opened is moved to large pages where it fills them; nothing else, and no byte."""

import contextlib
import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.executors import pages

LARGE = 2 << 20


class Asked:
    """The C library: it says what is in memory, and notes what is to be moved."""

    def __init__(self) -> None:
        self.moved: list[int] = []
        self._libc = ctypes.CDLL(None)

    def mincore(self, start: Any, length: Any, pages: Any) -> int:
        found: int = self._libc.mincore(start, length, pages)
        return found

    def madvise(self, start: Any, length: Any, advice: int) -> int:
        assert (length.value, advice) == (LARGE, 25) and start.value % LARGE == 0
        self.moved.append(start.value)
        return -1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    found = Asked()
    monkeypatch.setattr(pages, "_LIBC", found)
    monkeypatch.delenv(pages.SWITCH, raising=False)
    system = tmp_path / "enabled"
    system.write_text("always [madvise] never\n")
    monkeypatch.setattr(pages, "_SYSTEM", system)
    return found


def _private() -> mmap.mmap:
    return mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@contextlib.contextmanager
def memory(filled: float) -> Iterator[tuple[int, int]]:
    """Where 16 MiB lie of which the first part is in use."""
    content = np.frombuffer(_private(), np.uint8)
    content[: int(filled * len(content))] = 7
    yield content.ctypes.data, content.ctypes.data + len(content)


def within(moved: list[int], place: tuple[int, int]) -> int:
    return sum(place[0] <= start and start + LARGE <= place[1] for start in moved)


def test_what_is_taken_meanwhile_and_filled_is_moved(asked: Asked) -> None:
    with memory(1.0) as before, contextlib.ExitStack() as stack:
        with pages.large_pages(LARGE):
            full = stack.enter_context(memory(1.0))
            half = stack.enter_context(memory(0.5))
            empty = stack.enter_context(memory(0.0))
        assert [within(asked.moved, place) for place in (before, empty)] == [0, 0]
        assert within(asked.moved, full) >= 7 and 3 <= within(asked.moved, half) <= 4


def test_no_byte_changes_where_pages_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pages.SWITCH, raising=False)
    with pages.large_pages(LARGE):
        numbers = np.frombuffer(_private(), np.uint32)
        numbers[:] = np.arange(len(numbers))
    assert (numbers == np.arange(len(numbers))).all()


@pytest.mark.parametrize("why", ["small", "switch", "never", "no such file", "no Linux", "other pages"])
def test_nothing_is_moved_where_that_is_not_wanted(asked: Asked, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "switch":
        monkeypatch.setenv(pages.SWITCH, "0")
    elif why == "never":
        pages._SYSTEM.write_text("always madvise [never]\n")
    elif why == "no such file":
        pages._SYSTEM.unlink()
    elif why == "other pages":
        monkeypatch.setattr(mmap, "PAGESIZE", 65536)
    elif why == "no Linux":
        monkeypatch.setattr(pages, "_LIBC", None)
    with pages.large_pages(LARGE - 1 if why == "small" else LARGE), memory(1.0):
        pass
    assert asked.moved == []


def test_what_is_raised_inside_comes_out_and_nothing_is_moved(asked: Asked) -> None:
    with pytest.raises(KeyError), pages.large_pages(LARGE), memory(1.0):
        raise KeyError
    assert asked.moved == []


def test_parts_that_were_there_before_are_left_out() -> None:
    assert list(pages._without(10, 50, [(0, 12), (20, 30), (45, 60)])) == [(12, 20), (30, 45)]
    assert list(pages._without(10, 50, [])) == [(10, 50)]
    assert list(pages._without(10, 50, [(10, 50)])) == []
