"""Moves weights to pages of 2 MiB, where Linux allows it.

A step reads all weights once, and in pages of 4 KiB the processor looks up every one of these anew: of a float32 model
of 130 MB that takes a tenth to a fifth of a step of one row (`benchmarks/pages.py`). What a session has taken when it
is opened is moved, in the stretches that it fills: the same bytes, and hardly more memory. `madvise(2)`, MADV_COLLAPSE,
Linux 6.1 and later; elsewhere, or where the system or `RUNTIME_LITE_LARGE_PAGES=0` says never, nothing happens.
"""

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_COLLAPSE = 25  # MADV_COLLAPSE
_SIZE = 2 << 20
_PAGE = 4096
_SYSTEM = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPPINGS = Path("/proc/self/maps")

FILLED = 0.5
"""Share of a stretch of 2 MiB that must be in use for the stretch to be moved; the rest of it is taken, too."""

SWITCH = "RUNTIME_LITE_LARGE_PAGES"
"""The variable of the environment that says `0` for never."""


@contextlib.contextmanager
def large_pages(weights: int) -> Iterator[None]:
    """Move what is taken meanwhile, and is still there at the end, to large pages.

    Args:
        weights: bytes of what is opened; for less than a page nothing is done.
    """
    if weights < _SIZE or not _are_wanted():
        yield
        return
    before = _mappings()
    yield
    for start, end in _mappings():
        known = [each for each in before if each[0] < end and start < each[1]]
        for first, last in _without(start, end, known):
            _collapse(first, last)


def _are_wanted() -> bool:
    if _LIBC is None or mmap.PAGESIZE != _PAGE or os.environ.get(SWITCH) == "0":
        return False
    try:
        return "[never]" not in _SYSTEM.read_text()
    except OSError:
        return False


def _mappings() -> list[tuple[int, int]]:
    """Where memory lies that this process alone has and that is no file's."""
    found = []
    with contextlib.suppress(OSError):
        for line in _MAPPINGS.read_text().splitlines():
            place, rights, _, _, file, *name = line.split(maxsplit=5)
            if rights == "rw-p" and file == "0" and (not name or name[0] == "[heap]"):
                start, end = (int(number, 16) for number in place.split("-"))
                found.append((start, end))
    return found


def _without(start: int, end: int, known: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of a stretch that are not known, those being in order."""
    for first, last in known:
        if start < first:
            yield start, first
        start = max(start, last)
    if start < end:
        yield start, end


def _collapse(start: int, end: int) -> None:
    """Move what is filled of a stretch; whatever the system refuses stays where it is."""
    start, end = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
    if start >= end or _LIBC is None:
        return
    pages = np.empty((end - start) // _PAGE, np.uint8)
    if _LIBC.mincore(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_void_p(pages.ctypes.data)):
        return
    filled = (pages & 1).reshape(-1, _SIZE // _PAGE).mean(1) >= FILLED
    for at in np.flatnonzero(filled).tolist():
        _LIBC.madvise(ctypes.c_void_p(start + at * _SIZE), ctypes.c_size_t(_SIZE), _COLLAPSE)
