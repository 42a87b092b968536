"""Notifies every server when the process forks, and holds the lock of each so that no record is half written."""

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """An object that is notified of forks."""

    lock: threading.Lock

    def before_fork(self) -> None:
        """Called in the parent, before the lock of any object is taken."""
        ...

    def behind_fork(self) -> None:
        """Called in the parent after the fork, when all locks are free again."""
        ...

    def in_fork(self) -> None:
        """Called in the child, under the lock: no other thread of the process exists."""
        ...


_forking = threading.Lock()
_servers: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
_held: list[Forkable] = []


def tell_of_forks(server: Forkable) -> None:
    """Notify a server of every fork of this process, as long as the server exists."""
    _servers.add(server)


def _before() -> None:
    _forking.acquire()
    servers = list(_servers)
    for server in servers:
        server.before_fork()
    for server in servers:
        server.lock.acquire()
        _held.append(server)


def _in_parent() -> None:
    servers = _release()
    for server in servers:
        server.behind_fork()


def _in_child() -> None:
    for server in _held:
        server.in_fork()
    _release()


def _release() -> list[Forkable]:
    servers = list(_held)
    while _held:
        _held.pop().lock.release()
    _forking.release()
    return servers


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
