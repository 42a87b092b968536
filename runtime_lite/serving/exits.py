"""Waits at the end of the process for native code to return, before the interpreter goes.

A thread that comes back from a run, or from a session that it opens, into an interpreter that is gone takes the process
down with it. So every server is told of the end while its threads can end, and what is native besides is waited for.
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
    """What is told of the end."""

    def at_exit(self) -> None:
        """Behind the main thread, and those that the process waits for."""
        ...


class _Natives:
    """Counts the threads that are at something native which no server knows of."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_end = False

    def enter(self) -> bool:
        """One more; whether the process goes on."""
        with self._changed:
            self._count += not self._is_end
            return not self._is_end

    def leave(self) -> None:
        """One less."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let no more in."""
        with self._changed:
            self._is_end = True

    def wait(self) -> None:
        """Wait for those that are in."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count, CLOSE_S)


_servers: "weakref.WeakSet[Ending]" = weakref.WeakSet()
_natives = _Natives()


def tell_of_exit(server: Ending) -> None:
    """Tell a server of the end of this process, if it lives so long."""
    _servers.add(server)


@contextlib.contextmanager
def native_work(where: str) -> Iterator[None]:
    """Have the end of the process wait for what is done in a `with` block.

    Args:
        where: names the call in messages.

    Raises:
        Overloaded: the process ends.
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
    """In a fork of the process: the other threads are not here."""
    global _natives
    _natives = _Natives()


os.register_at_fork(after_in_child=_forget)
