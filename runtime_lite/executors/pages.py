"""Moves weights to memory pages of 2 MiB, if Linux allows it.

A step reads all weights once, and the processor must look up the address of every page again: with pages of 4 KiB and a
float32 model of 130 MB this takes a tenth to a fifth of a step of one row (`benchmarks/pages.py`). The memory that a
session allocates when it is opened is moved to large pages; the content is unchanged, and hardly more memory is used.
This needs MADV_COLLAPSE of `madvise(2)`, Linux 6.1 and later; otherwise, or if the system or
`RUNTIME_LITE_LARGE_PAGES=0` disables it, nothing happens.
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
"""Share of a range of 2 MiB that must be in use for the range to be moved; its unused pages are allocated, too."""

SWITCH = "RUNTIME_LITE_LARGE_PAGES"
"""Environment variable that disables large pages if it is `0`."""


@contextlib.contextmanager
def large_pages(weights: int) -> Iterator[None]:
    """Move memory that is allocated in a `with` block, and still in use at its end, to large pages.

    Args:
        weights: bytes of the weights that are loaded; below the size of a page nothing is done.
    """
    if weights < _SIZE or not _are_wanted():
        yield
        return
    before = _mappings()
    yield
    for start, end in _mappings():
        known = [mapping for mapping in before if mapping[0] < end and start < mapping[1]]
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
    """Return start and end of the private memory of this process that belongs to no file."""
    found = []
    with contextlib.suppress(OSError):
        for line in _MAPPINGS.read_text().splitlines():
            place, rights, _, _, file, *name = line.split(maxsplit=5)
            if rights == "rw-p" and file == "0" and (not name or name[0] == "[heap]"):
                start, end = (int(number, 16) for number in place.split("-"))
                found.append((start, end))
    return found


def _without(start: int, end: int, known: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that do not overlap the sorted ranges `known`."""
    for first, last in known:
        if start < first:
            yield start, first
        start = max(start, last)
    if start < end:
        yield start, end


def _collapse(start: int, end: int) -> None:
    """Move the filled parts of a range to large pages; parts that the system refuses stay as they are."""
    start, end = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
    if start >= end or _LIBC is None:
        return
    pages = np.empty((end - start) // _PAGE, np.uint8)
    if _LIBC.mincore(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_void_p(pages.ctypes.data)):
        return
    filled = (pages & 1).reshape(-1, _SIZE // _PAGE).mean(1) >= FILLED
    for at in np.flatnonzero(filled).tolist():
        _LIBC.madvise(ctypes.c_void_p(start + at * _SIZE), ctypes.c_size_t(_SIZE), _COLLAPSE)
