"""Pauses or slows down Python's garbage collector while many long-lived objects are created."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection in a block or a decorated function.

    Facts and records of a proof live as long as the proof. Scanning them repeatedly takes as long as the proof itself
    at 20 000 nodes, and grows faster than they do.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


SELDOM = (100_000, 10, 10)
"""Objects made before the newest are looked through; and how often that is, before older and before all are."""


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """Raise the threshold of garbage collection in a block.

    A copied graph is tens of thousands of objects, and Python scans the newest at every 700th. Most of the time of a
    copy went there.
    """
    was = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*was)
