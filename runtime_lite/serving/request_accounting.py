"""Request accounting: every request that came in has ended exactly once, or is live.

Ends are counted by class and reason; live requests are kept by number beside the counts, so that `balanced` compares
two things. Used under the server's lock.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from runtime_lite.errors import InternalError
from runtime_lite.serving.events import Outcome


@dataclass(frozen=True)
class RequestCounts:
    """Counts of a `RequestAccounting` at one moment; an `Observer` that counts events must get the same.

    Attributes:
        submitted: requests that came in, refused ones included.
        live: requests that have not ended.
        ends: how many ended, by service class, outcome and reason; the reason of what is done is empty.
    """

    submitted: int
    live: int
    ends: Mapping[tuple[str, Outcome, str], int]

    def count(self, outcome: Outcome) -> int:
        """How many ended that way."""
        return sum(number for (_, found, _), number in self.ends.items() if found == outcome)

    @property
    def balanced(self) -> bool:
        """Whether submitted = done + dropped + cancelled + failed + live."""
        return self.submitted == sum(self.ends.values()) + self.live


class RequestAccounting:
    """Counts requests in and out."""

    def __init__(self) -> None:
        """Start without a request."""
        self._submitted = 0
        self._live: dict[int, str] = {}
        self._ends: Counter[tuple[str, Outcome, str]] = Counter()

    def submit(self, service: str) -> int:
        """Enter a request of a service class; return its number, counted from 1."""
        self._submitted += 1
        self._live[self._submitted] = service
        return self._submitted

    def end(self, number: int, outcome: Outcome, reason: str = "") -> None:
        """Close a request.

        Raises:
            InternalError: it has ended before, or never came in.
        """
        service = self._live.pop(number, None)
        if service is None:
            raise InternalError(f"requests: expected a live request, got {number}, which is none; report this")
        self._ends[service, outcome, reason] += 1

    @property
    def live(self) -> list[int]:
        """Numbers of the requests that have not ended, oldest first."""
        return list(self._live)

    def counts(self) -> RequestCounts:
        """The counts now."""
        return RequestCounts(self._submitted, len(self._live), dict(self._ends))
