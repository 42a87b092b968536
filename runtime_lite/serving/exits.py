"""Waits, when the process ends, until native code has returned, before the interpreter is finalized.

A thread that returns from a run, or from opening a session, after the interpreter is finalized crashes the process. So
every server is notified of the end while its threads can still end, and other native calls are waited for.
"""

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol

from runtime_lite.serving.refusals import CLOSE_S, EXITING, overloaded
from runtime_lite.serving.shield import Shield


class Ending(Protocol):
    """An object that is notified of the end of the process."""

    def at_exit(self) -> None:
        """Called after the main thread, and the threads that the process waits for, have ended."""
        ...


class _Natives:
    """Counts the threads in native calls that no server knows of."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_end = False

    def enter(self) -> bool:
        """Count one more thread, unless the process ends; return whether it was counted."""
        with self._changed:
            self._count += not self._is_end
            return not self._is_end

    def leave(self) -> None:
        """Count one thread less."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let `enter` count no more threads."""
        with self._changed:
            self._is_end = True

    def wait(self) -> None:
        """Wait until no thread is counted, at most `CLOSE_S` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count, CLOSE_S)


_servers: "weakref.WeakSet[Ending]" = weakref.WeakSet()
_natives = _Natives()


def tell_of_exit(server: Ending) -> None:
    """Notify a server of the end of this process, if the server still exists then."""
    _servers.add(server)


@contextlib.contextmanager
def native_work(where: str) -> Iterator[None]:
    """Let the end of the process wait for the body of a `with` block.

    Args:
        where: name of the call in messages.

    Raises:
        Overloaded: the process is ending.
    """
    is_in = False
    try:
        with Shield():
            is_in = _natives.enter()
        if not is_in:
            raise overloaded(where, EXITING)
        yield
    finally:
        if is_in:
            with Shield():
                _natives.leave()


@atexit.register
def _tell() -> None:
    _natives.end()
    for server in list(_servers):
        server.at_exit()
    _natives.wait()


def _forget() -> None:
    """In a forked child: count no threads, because those of the parent do not exist there."""
    global _natives
    _natives = _Natives()


os.register_at_fork(after_in_child=_forget)
