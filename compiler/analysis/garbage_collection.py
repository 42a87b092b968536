"""Python's garbage collector, paused while a great many objects are made that all live on."""

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
