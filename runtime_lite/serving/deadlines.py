"""Ends requests at their deadlines, whatever still runs for them.

Used under the server's lock.
"""

import heapq
from collections.abc import Mapping
from typing import Any

from runtime_lite.serving.ticket import Ticket

SPARE = 64
"""Most ended requests that are remembered beside the live ones."""


class Deadlines:
    """The deadlines of one server's requests.

    Args:
        alive: requests that have not ended, by number; others are not held.
    """

    def __init__(self, alive: Mapping[int, Ticket[Any]]) -> None:
        """Start without one."""
        self._alive = alive
        self._due: list[tuple[int, int]] = []
        self._most = SPARE

    def add(self, ticket: Ticket[Any]) -> None:
        """Watch a request that is alive, if it has a deadline."""
        if ticket.hard is None:
            return
        if len(self._due) >= self._most:
            self._due = [each for each in self._due if each[1] in self._alive]
            heapq.heapify(self._due)
            self._most = 2 * len(self._due) + SPARE
        heapq.heappush(self._due, (ticket.hard, ticket.number))

    def passed(self, now: int) -> list[Ticket[Any]]:
        """Return the requests that are alive and whose deadline has passed, and watch them no more."""
        found = []
        while self.next is not None and self.next <= now:
            found.append(self._alive[heapq.heappop(self._due)[1]])
        return found

    @property
    def next(self) -> int | None:
        """When to ask `passed`; None while no request that is alive has a deadline."""
        while self._due and self._due[0][1] not in self._alive:
            heapq.heappop(self._due)
        return self._due[0][0] + 1 if self._due else None
