"""Generates a sequence of tokens in one request: feeds every drawn token back as the next chunk of a stream.

A generation is one request. Its steps share runs with those of other generations and with chunks of streams, as the
scheduler decides; its caller gets tokens, and none goes back to the caller between two steps. It has a stream of its
own, which is closed when it ends, however it ends.
"""

from collections.abc import Callable, Sequence

from runtime_lite.decoding.steps import Ended, Steps
from runtime_lite.serving.events import Outcome
from runtime_lite.serving.request import LiveStream, Outputs, Owner, Part
from runtime_lite.serving.ticket import ResponseQueue


class Generation(ResponseQueue[int]):
    """A sequence that is being generated; iterate over it, or await it, for its tokens.

    Args:
        owner: the server.
        where: name of the call in messages.
        live: the stream, which belongs to this request alone.
        steps: its steps in that stream.
        close: ends a stream.
        room: number of tokens that may be unread; generation pauses there.
    """

    is_continued = True

    def __init__(
        self,
        owner: Owner,
        where: str,
        live: LiveStream,
        steps: Steps,
        close: Callable[[LiveStream], object],
        room: int,
    ) -> None:
        """Start before the first call."""
        super().__init__(owner, where, live.options.service.name, 1, room)
        self._live, self._steps, self._close = live, steps, close
        self._drawn: int | None = None
        self._chunk: Part | None = None

    @property
    def ended_by(self) -> Ended:
        """What ended it: `stop`, `max_tokens`, or `window`, the end of the window of a cache.

        Empty while it goes on, and where it failed or was cancelled.
        """
        return self._steps.ended_by

    @property
    def least_margin(self) -> float:
        """The smallest margin of a draw so far; see `Draw`.

        Where it is near the rounding of scores, a bucket that computes in another order may draw another token.
        """
        return self._steps.least_margin

    def prepare(self, part: Part, outputs: Outputs) -> None:
        """Draw the next token and make the chunk that feeds it.

        Raises:
            ExecutorFailed: nothing can be drawn of the scores.
        """
        self._drawn = self._steps.take(outputs)
        if self._drawn is not None and not self.ended_by:
            self._chunk = self._steps.following(self, self._drawn)

    def put(self, index: int, outputs: list[Outputs]) -> bool:
        """Append the drawn token; called by the server. Return whether it was the last one."""
        if self._drawn is not None:
            self._ring.append(self._drawn)
            self._drawn = None
        return self.ended_by != ""

    def following(self) -> Sequence[Part]:
        """Return the chunk of the drawn token, once."""
        following, self._chunk = self._chunk, None
        return () if following is None else (following,)

    def end(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        """End the generation; called by the server. Its stream is closed right behind, without the lock."""
        super().end(outcome, reason, error)
        self._chunk = None
        self.wakers.append(lambda: self._close(self._live))
