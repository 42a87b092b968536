"""Pauses or slows down Python's garbage collector while a great many lasting objects are made."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Collect nothing in the meantime; usable as a decorator, too.

    Facts and records of a proof live as long as the proof. Looking through them again and again for what might be
    garbage takes as long as the proof itself at 20 000 nodes, and grows faster than they do.
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
    """Collect less often in the meantime.

    A copied graph is tens of thousands of objects, and Python looks through the newest at every 700th. Most of the time
    of a copy went there.
    """
    was = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*was)
