"""Ends requests at their deadlines, even if parts of them still run.

Its methods are called under the server's lock.
"""

import heapq
from collections.abc import Mapping
from typing import Any

from runtime_lite.serving.request import LiveRequest

SPARE = 64
"""Largest number of ended requests that stay in the heap beside the unended ones."""


class Deadlines:
    """The deadlines of one server's requests.

    Args:
        alive: requests that have not ended, by number; this object adds and removes none.

    Attributes:
        due: heap of deadlines and numbers of requests; some of the requests may have ended.
    """

    def __init__(self, alive: Mapping[int, LiveRequest[Any]]) -> None:
        """Start without a deadline."""
        self._alive = alive
        self.due: list[tuple[int, int]] = []
        self._most = SPARE

    def add(self, request: LiveRequest[Any]) -> None:
        """Watch a request that has not ended and has a deadline."""
        assert request.hard is not None
        if len(self.due) >= self._most:
            self.due = [each for each in self.due if each[1] in self._alive]
            heapq.heapify(self.due)
            self._most = 2 * len(self.due) + SPARE
        heapq.heappush(self.due, (request.hard, request.number))

    def passed(self, now: int) -> list[LiveRequest[Any]]:
        """Return the unended requests whose deadline has passed, and stop watching them."""
        found = []
        while self.next is not None and self.next <= now:
            found.append(self._alive[heapq.heappop(self.due)[1]])
        return found

    @property
    def next(self) -> int | None:
        """The time at which to call `passed` next; None if no unended request has a deadline."""
        while self.due and self.due[0][1] not in self._alive:
            heapq.heappop(self.due)
        return self.due[0][0] + 1 if self.due else None
