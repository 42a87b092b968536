"""Returns free heap memory to the operating system after a graph was opened."""

import ctypes
import sys

# asked for on import: whoever watches what a build reads sees no library opened while a model is
_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


_MALLOPT = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
_MMAP_THRESHOLD = -3
LARGE_BLOCK_BYTES = 8 << 20
"""Bytes of a large block of the heap: the weights of a layer have this size, values computed by a run are smaller."""


def return_large_blocks() -> None:
    """Configure the C library to return a large block to the system as soon as it is freed.

    By default the C library keeps such blocks after the first one is freed, and they fragment the heap.
    """
    if _MALLOPT is not None:
        _MALLOPT(_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def trim_heap() -> None:
    """Return free memory of the heap to the system, if the C library can; opening a session leaves much of it."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
