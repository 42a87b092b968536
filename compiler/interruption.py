"""Ctrl-C and SIGTERM end a build alike: work unwinds, and what must not be cut in two is finished first.

    with signals_interrupt():           # the front door
        with shielded():                # make a folder and note that it is to be removed
            ...

The first signal raises KeyboardInterrupt in the main thread, or at the end of the shield that it falls into. Later ones
are swallowed, so that clean-up is not interrupted.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_shields = 0
_waiting = False
_raised = False


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let both signals raise KeyboardInterrupt while the body runs; in another thread than the main one, as it was."""
    global _raised, _waiting
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _raised = _waiting = False
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Put a signal off until the body has ended.

    Raises:
        KeyboardInterrupt: at the end, where a signal came meanwhile.
    """
    global _shields, _waiting
    _shields += 1
    try:
        yield
    finally:
        _shields -= 1
        if _waiting and not _shields:
            _waiting = False
            _raise()


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _waiting
    if _shields:
        _waiting = True
    elif not _raised:
        _raise()


def _raise() -> None:
    global _raised
    _raised = True
    raise KeyboardInterrupt
