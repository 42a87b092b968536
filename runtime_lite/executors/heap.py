"""What opening a graph leaves in the heap goes back to the system."""

import ctypes
import sys

# asked for on import: whoever watches what a build reads sees no library opened while a model is
_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def trim_heap() -> None:
    """Give the system what opening a session has left in the heap, as much as its weights; where the C library can."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
