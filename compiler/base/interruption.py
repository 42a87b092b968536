"""Ends a build cleanly on Ctrl-C or SIGTERM: the work unwinds, and operations that must stay whole are finished first.

    with signals_interrupt():           # the front door
        with shielded():                # make a folder and note that it is to be removed
            ...

    with insisted():                    # every stage
        ...

The first signal raises KeyboardInterrupt in the main thread, or at the end of the shield that it falls into. Later ones
are swallowed, so that clean-up is not interrupted. Code of others may take the exception for an error of its own, or
drop it, as Python itself does in finalizers; then it is raised again, and nothing is printed of what was dropped.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_shields = 0
_waiting = False
_raised = False


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let the signals SIGINT and SIGTERM raise KeyboardInterrupt in the body; has no effect outside the main thread."""
    global _raised, _waiting
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _raised = _waiting = False
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    tell = sys.unraisablehook

    def tell_of_others(dropped: "sys.UnraisableHookArgs") -> None:
        if not (_raised and dropped.exc_type is KeyboardInterrupt):
            tell(dropped)

    sys.unraisablehook = tell_of_others
    try:
        with insisted():
            yield
    finally:
        _raised = _waiting = False
        sys.unraisablehook = tell
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def insisted() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if a signal came and code in the body caught or replaced the exception.

    Raises:
        KeyboardInterrupt: a signal came, and the body returned or raised another exception.
    """
    try:
        yield
    except Exception as error:
        if _raised:
            raise KeyboardInterrupt from error
        raise
    if _raised:
        raise KeyboardInterrupt


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Defer signals until the body has ended.

    Raises:
        KeyboardInterrupt: at the end, if a signal came meanwhile.
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
