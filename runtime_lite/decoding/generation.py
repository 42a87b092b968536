"""Generates a sequence within the runtime: every token that is drawn is fed back as the next chunk of a stream.

A generation is one request. Its steps share runs with those of other generations and with chunks of streams, as the
scheduler decides; its caller gets tokens, and none goes back to the caller between two steps. It has a stream of its
own, which is closed when it ends, however it ends.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import numpy as np

from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.decoding.sampling import Sampler
from runtime_lite.errors import BadInput, ExecutorFailed, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph, Tensor
from runtime_lite.format.sampling import Sampling
from runtime_lite.scheduling.clock import Clock
from runtime_lite.serving.events import Outcome
from runtime_lite.serving.request import LiveStream, Outputs, Owner, Part, make_part
from runtime_lite.serving.ticket import ResponseQueue

Ended: TypeAlias = Literal["", "stop", "max_tokens", "window"]


class Generation(ResponseQueue[int]):
    """A sequence that is being generated; iterate over it, or await it, for its tokens.

    Attributes:
        ended_by: what ended it: a stop token, the most tokens asked for, or the end of the window of a cache; empty
            while it goes on, and where it failed or was cancelled.
        least_margin: the smallest margin of a draw so far; see `Draw`. Where it is near the rounding of scores, a
            bucket that computes in another order may draw another token.

    Args:
        owner: the server.
        where: name of the call in messages.
        live: the stream, which belongs to this request alone.
        feeds: the first call's arrays; those but `tokens` are fed again in every call.
        tokens: integer input that tokens are fed to, [1, count].
        scores: output with the scores of the next token, [..., tokens of the vocabulary].
        sampling: how tokens are drawn.
        clock: the server's.
        close: ends a stream.
        room: number of tokens that may be unread; generation pauses there.

    Raises:
        BadInput: an input or output is not there or of another kind.
    """

    is_continued = True

    def __init__(
        self,
        owner: Owner,
        where: str,
        live: LiveStream,
        feeds: Mapping[str, Array],
        tokens: str,
        scores: str,
        sampling: Sampling,
        clock: Clock,
        close: Callable[[LiveStream], object],
        room: int,
    ) -> None:
        """Start before the first call, which `first` returns."""
        super().__init__(owner, where, live.options.service.name, 1, room)
        assert isinstance(live.runner, GraphRunner)
        self.ended_by: Ended = ""
        self.least_margin = float("inf")
        self._live, self._runner, self._feeds = live, live.runner, feeds
        self._tokens, self._scores = tokens, scores
        self._sampler, self._sampling, self._count = Sampler(sampling), sampling, 0
        self._clock, self._close = clock, close
        self._dtype = np.dtype(_input_of_tokens(where, live.runner.graph, tokens).dtype)
        _require_scores(where, live.runner.graph, scores)
        self._drawn: int | None = None
        self._chunk: Part | None = None
        self._frames = dict.fromkeys((cache.axis for cache in live.runner.graph.caches), 0)

    def first(self, hard: int | None) -> Part:
        """Return the part of the first call.

        Args:
            hard: time from which the answer is worthless; None for never.

        Raises:
            BadInput: the feeds are not those of the graph, or have more than one row.
        """
        part = self._part(self._feeds, hard, copy=True)
        self._feeds = part.feeds[0].arrays  # the caller's arrays are the caller's again
        return part

    def _part(self, feeds: Mapping[str, Array], hard: int | None, *, copy: bool = False) -> Part:
        live = self._live
        feed = self._runner.check(self.where, feeds, 1, copy=copy)
        if feed.rows != 1:
            raise BadInput(f"{self.where}: expected 1 row, got {feed.rows}; generate each sequence by itself")
        for cache in self._runner.graph.caches:
            self._frames[cache.axis] += cache.frames_of(feed.sizes)
        service, now = live.options.service, self._clock()
        return make_part(self, 0, live.version, self._runner, [feed], service, now, hard, live)

    def prepare(self, part: Part, outputs: Outputs) -> None:
        """Draw the next token and make the chunk that feeds it.

        Raises:
            ExecutorFailed: nothing can be drawn of the scores.
        """
        scores = outputs[self._scores]
        try:
            draw = self._sampler.take(scores.reshape(-1, scores.shape[-1])[-1])
        except ValueError as error:
            raise ExecutorFailed(
                f"{self.where}: token {self._count}: output {self._scores!r}: {error}; check the model and its feeds",
                "scores",
            ) from error
        self.least_margin = min(self.least_margin, draw.margin)
        if draw.token in self._sampling.stop:
            self.ended_by = "stop"
            return
        self._count += 1
        self._drawn = draw.token
        if self._count == self._sampling.max_tokens:
            self.ended_by = "max_tokens"
        elif self._is_full():
            self.ended_by = "window"
        else:
            token = np.full((1, 1), draw.token, self._dtype)
            self._chunk = self._part({**self._feeds, self._tokens: token}, self.hard)

    def _is_full(self) -> bool:
        """Whether a cache of which no frame may be overwritten has no slot for one more step."""
        caches = self._runner.graph.caches
        return any(cache.is_whole and self._frames[cache.axis] + cache.step > cache.slots for cache in caches)

    def put(self, index: int, outputs: list[Outputs]) -> bool:
        """Append the drawn token; called by the server. Return whether it was the last one."""
        if self._drawn is not None:
            self._ring.append(self._drawn)
            self._drawn = None
        return self.ended_by != ""

    def following(self) -> Part | None:
        """Return the chunk of the drawn token, once."""
        following, self._chunk = self._chunk, None
        return following

    def end(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        """End the generation; called by the server. Its stream is closed right behind, without the lock."""
        super().end(outcome, reason, error)
        self._chunk = None
        self.wakers.append(lambda: self._close(self._live))


def _input_of_tokens(where: str, graph: Graph, name: str) -> Tensor:
    inputs = [
        tensor
        for tensor in graph.inputs
        if tensor.role == "data" and tensor.dtype in ("int32", "int64") and len(tensor.shape) == 2
    ]
    found = next((tensor for tensor in inputs if isinstance(name, str) and tensor.name == name), None)
    if found is None:
        names = ", ".join(repr(tensor.name) for tensor in inputs) or "none"
        raise BadInput(
            f"{where}: tokens: expected an integer input of shape [rows, count] (there is {names}), got {show(name)}; "
            "name the input that takes tokens"
        )
    return found


def _require_scores(where: str, graph: Graph, name: str) -> None:
    outputs = [
        tensor.name
        for tensor in graph.outputs
        if tensor.role == "data" and tensor.dtype.startswith("float") and tensor.shape
    ]
    if not isinstance(name, str) or name not in outputs:
        names = ", ".join(map(repr, outputs)) or "none"
        raise BadInput(
            f"{where}: scores: expected an output of floats (there is {names}), got {show(name)}; name the output that "
            "has the scores of the next token"
        )
