"""Makes the decoding steps of one sequence: draws a token from the scores of a call and feeds it as the next chunk."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.decoding.sampling import Sampler
from runtime_lite.errors import BadInput, ExecutorFailed, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph, Tensor
from runtime_lite.format.sampling import Sampling
from runtime_lite.scheduling.clock import Clock
from runtime_lite.scheduling.task import ServiceClass
from runtime_lite.serving.request import LiveRequest, LiveStream, Outputs, Part, make_part

Ended: TypeAlias = Literal["", "stop", "max_tokens", "window", "too_long"]


class Steps:
    """The steps of one sequence, which are parts of one request in a stream of its own.

    Attributes:
        ended_by: what ended it: a stop token, the most tokens asked for, the end of the window of a cache, or the most
            tokens that its text may take; empty while it goes on.
        least_margin: the smallest margin of a draw so far; see `Draw`.
        count: number of tokens drawn, without the stop token.

    Args:
        where: name of the call in messages.
        live: the stream, which belongs to this sequence alone.
        feeds: the first call's arrays; those but `tokens` are fed again in every call.
        tokens: integer input that tokens are fed to, [1, count].
        scores: output with the scores of the next token, [..., tokens of the vocabulary].
        sampling: how tokens are drawn.
        clock: the server's.
        limit: the most tokens that its text may take; None for any.

    Raises:
        BadInput: an input or output is not there or of another kind, or a stop token has no score.
    """

    def __init__(
        self,
        where: str,
        live: LiveStream,
        feeds: Mapping[str, Array],
        tokens: str,
        scores: str,
        sampling: Sampling,
        clock: Clock,
        limit: int | None = None,
    ) -> None:
        """Start before the first call, which `first` returns."""
        assert isinstance(live.runner, GraphRunner)
        self.ended_by: Ended = ""
        self.least_margin = float("inf")
        self.count = 0
        self._where, self._live, self._runner, self._feeds = where, live, live.runner, feeds
        self._tokens, self._scores = tokens, scores
        self._sampler, self._sampling, self._limit = Sampler(sampling), sampling, limit
        self._clock = clock
        self._dtype = np.dtype(_input_of_tokens(where, live.runner.graph, tokens).dtype)
        _check_stop(where, _output_of_scores(where, live.runner.graph, scores), sampling)
        self._frames = dict.fromkeys((cache.axis for cache in live.runner.graph.caches), 0)

    def first(self, request: LiveRequest[Any], hard: int | None) -> Part:
        """Return the part of the first call, for whose answer the caller waits.

        Args:
            request: the request that it belongs to.
            hard: time from which the answer is worthless; None for never.

        Raises:
            BadInput: the feeds are not those of the graph, or have more than one row.
        """
        service = self._live.options.service._replace(patient=False)
        part = self._part(request, self._feeds, hard, service, copy=True)
        self._feeds = part.feeds[0].arrays  # the caller's arrays are the caller's again
        return part

    def _part(
        self,
        request: LiveRequest[Any],
        feeds: Mapping[str, Array],
        hard: int | None,
        service: ServiceClass,
        *,
        copy: bool = False,
    ) -> Part:
        live = self._live
        feed = self._runner.check(self._where, feeds, 1, copy=copy)
        if feed.rows != 1:
            raise BadInput(f"{self._where}: expected 1 row, got {feed.rows}; generate each sequence by itself")
        for cache in self._runner.graph.caches:
            self._frames[cache.axis] += cache.frames_of(feed.sizes)
        return make_part(request, 0, live.version, self._runner, [feed], service, self._clock(), hard, live)

    def take(self, outputs: Outputs) -> int | None:
        """Draw the next token from the answer of a call; None if a stop token was drawn.

        Raises:
            ExecutorFailed: nothing can be drawn of the scores.
        """
        scores = outputs[self._scores]
        try:
            draw = self._sampler.take(scores.reshape(-1, scores.shape[-1])[-1])
        except ValueError as error:
            raise ExecutorFailed(
                f"{self._where}: token {self.count}: output {self._scores!r}: {error}; check the model and its feeds",
                "scores",
            ) from error
        self.least_margin = min(self.least_margin, draw.margin)
        if draw.token in self._sampling.stop:
            self.ended_by = "stop"
            return None
        self.count += 1
        if self.count == self._sampling.max_tokens:
            self.ended_by = "max_tokens"
        elif self.count == self._limit:
            self.ended_by = "too_long"
        elif self._is_full():
            self.ended_by = "window"
        return draw.token

    def following(self, request: LiveRequest[Any], token: int) -> Part:
        """Return the part that feeds a token, which `take` has returned and did not end the sequence.

        Raises:
            BadInput: the graph does not take the token.
        """
        fed = np.full((1, 1), token, self._dtype)
        return self._part(request, {**self._feeds, self._tokens: fed}, request.hard, self._live.options.service)

    def _is_full(self) -> bool:
        """Whether a cache of which no frame may be overwritten has no slot for one more step."""
        caches = self._runner.graph.caches
        return any(cache.is_whole and self._frames[cache.axis] + cache.step > cache.slots for cache in caches)


def _input_of_tokens(where: str, graph: Graph, name: str) -> Tensor:
    inputs = [
        tensor
        for tensor in graph.inputs
        if tensor.role == "data" and tensor.dtype in ("int32", "int64") and len(tensor.shape) == 2
    ]
    expected = "an integer input of shape [rows, count]"
    return _tensor_named(f"{where}: tokens", inputs, name, expected, "name the input that takes tokens")


def _output_of_scores(where: str, graph: Graph, name: str) -> Tensor:
    outputs = [
        tensor
        for tensor in graph.outputs
        if tensor.role == "data" and tensor.dtype.startswith("float") and tensor.shape
    ]
    cure = "name the output that has the scores of the next token"
    return _tensor_named(f"{where}: scores", outputs, name, "an output of floats", cure)


def _tensor_named(where: str, tensors: Sequence[Tensor], name: str, expected: str, cure: str) -> Tensor:
    """Return the tensor of a name, which a caller gave.

    Raises:
        BadInput: there is none; the message lists the tensors that there are.
    """
    for tensor in tensors:
        if isinstance(name, str) and tensor.name == name:
            return tensor
    names = ", ".join(repr(tensor.name) for tensor in tensors) or "none"
    raise BadInput(f"{where}: expected {expected} (there is {names}), got {show(name)}; {cure}")


def _check_stop(where: str, scores: Tensor, sampling: Sampling) -> None:
    """Refuse a stop token that is never drawn, as it has no score."""
    size, last = scores.shape[-1], max(sampling.stop, default=0)
    if isinstance(size, int) and last >= size:
        raise BadInput(
            f"{where}: sampling.stop: expected tokens below {size}, the number of scores, got {last}; correct it"
        )
