"""Returns memory of the heap to the system after a graph was opened."""

import ctypes
import sys

# asked for on import: whoever watches what a build reads sees no library opened while a model is
_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


_MALLOPT = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
_MMAP_THRESHOLD = -3
LARGE_BLOCK_BYTES = 8 << 20
"""A block of the heap as large as a layer's weights; what runs compute call by call is smaller."""


def return_large_blocks() -> None:
    """From now on a large block goes back to the system when it is freed, wherever in the heap it would have lain.

    By itself the C library learns from the first that is freed to keep such blocks, and they lie apart ever after.
    """
    if _MALLOPT is not None:
        _MALLOPT(_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def trim_heap() -> None:
    """Give the system what opening a session has left in the heap, as much as its weights; where the C library can."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
