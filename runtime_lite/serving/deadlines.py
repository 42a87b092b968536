"""Ends requests at their deadlines, whatever still runs for them.

Used under the server's lock.
"""

import heapq
from collections.abc import Mapping
from typing import Any

from runtime_lite.serving.request import LiveRequest

SPARE = 64
"""Most ended requests that are remembered beside the live ones."""


class Deadlines:
    """The deadlines of one server's requests.

    Args:
        alive: requests that have not ended, by number; others are not held.

    Attributes:
        due: deadline and number of requests that had not ended lately, as a heap.
    """

    def __init__(self, alive: Mapping[int, LiveRequest[Any]]) -> None:
        """Start without one."""
        self._alive = alive
        self.due: list[tuple[int, int]] = []
        self._most = SPARE

    def add(self, request: LiveRequest[Any]) -> None:
        """Watch a request that is alive and has a deadline."""
        assert request.hard is not None
        if len(self.due) >= self._most:
            self.due = [each for each in self.due if each[1] in self._alive]
            heapq.heapify(self.due)
            self._most = 2 * len(self.due) + SPARE
        heapq.heappush(self.due, (request.hard, request.number))

    def passed(self, now: int) -> list[LiveRequest[Any]]:
        """Return the requests that are alive and whose deadline has passed, and watch them no more."""
        found = []
        while self.next is not None and self.next <= now:
            found.append(self._alive[heapq.heappop(self.due)[1]])
        return found

    @property
    def next(self) -> int | None:
        """When to ask `passed`; None while no request that is alive has a deadline."""
        while self.due and self.due[0][1] not in self._alive:
            heapq.heappop(self.due)
        return self.due[0][0] + 1 if self.due else None
