"""An observer that counts requests itself, to compare the runtime's counts with."""

from collections import Counter

from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange
from runtime_lite.serving.request_tracker import RequestCounts


class ObservedRequests:
    """Counts what it hears.

    Attributes:
        alive: numbers of the requests that have not ended.
        ends: by class, outcome and reason.
        twice: events of requests that had ended, or never came.
        responses: by request.
        last: end of each request, by its number.
        streams: reason by number of the stream that ended against its caller's will.
    """

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.ends: Counter[tuple[str, Outcome, str]] = Counter()
        self.twice = 0
        self.responses: Counter[int] = Counter()
        self.streams: dict[int, str] = {}

    def submitted(self, request: Request) -> None:
        self.twice += request.number in self.alive
        self.alive.add(request.number)

    def responded(self, request: Request, index: int, now: int) -> None:
        self.twice += request.number not in self.alive or index != self.responses[request.number]
        self.responses[request.number] += 1

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        self.twice += request.number not in self.alive
        self.alive.discard(request.number)
        self.ends[request.service, outcome, reason] += 1

    def executed(self, execution: Execution) -> None: ...

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None:
        if change in ("expired", "slow"):
            self.streams[stream] = reason

    def model_changed(self, model: str, change: ModelChange, now: int) -> None: ...

    def agree(self, counts: RequestCounts) -> bool:
        """Whether the runtime's counts balance and are the same."""
        return counts.balanced and counts.live == len(self.alive) and counts.ends == self.ends and not self.twice
