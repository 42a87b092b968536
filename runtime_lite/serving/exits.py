"""The end of the process: every server is told while its threads can end, so that no run outlives the interpreter."""

import atexit
import weakref
from typing import Protocol


class Ending(Protocol):
    """What is told of the end."""

    def at_exit(self) -> None:
        """Behind the main thread, and those that the process waits for."""
        ...


_servers: "weakref.WeakSet[Ending]" = weakref.WeakSet()


def tell_of_exit(server: Ending) -> None:
    """Tell a server of the end of this process, if it lives so long."""
    _servers.add(server)


@atexit.register
def _tell() -> None:
    for server in list(_servers):
        server.at_exit()
