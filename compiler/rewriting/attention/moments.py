"""Measures second moments of queries, keys and values over calibration streams.

Sums over all frames of all calls, in double precision; nothing else of the frames is kept.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from compiler.calib.watched_streams import run_streams
from compiler.graph.runners.instrumented import exposed
from compiler.graph.stages import Array as Numbers
from compiler.graph.stages import Feed, Lowered
from compiler.rewriting.attention.attention import Attention, Heads
from compiler.rewriting.attention.shared_maps import Array


@dataclasses.dataclass
class HeadMoments:
    """Moments of one attention's projections.

    Attributes:
        queries: q_h^T q_h, float64 [heads, d, d].
        keys: of all heads beside each other, float64 [heads, d, heads, d].
        values: likewise.
    """

    queries: Array
    keys: Array
    values: Array


def head_moments(
    lowered: Lowered, attentions: Sequence[Attention], streams: Sequence[Sequence[Feed]]
) -> list[HeadMoments]:
    """Return the moments of every attention.

    Args:
        lowered: the graph.
        attentions: the attentions to measure.
        streams: feeds of one row.
    """
    moments_of = []
    for attention in attentions:
        shape = (attention.heads, attention.size, attention.heads, attention.size)
        moments_of.append(
            HeadMoments(np.zeros((attention.heads, attention.size, attention.size)), np.zeros(shape), np.zeros(shape))
        )
    names = [
        str(heads.value.name) for attention in attentions for heads in (attention.query, attention.key, attention.value)
    ]
    for call in run_streams(exposed(lowered, names), streams):
        for moments, attention in zip(moments_of, attentions, strict=True):
            queries, keys, values = (
                _frames(each_heads, call.outputs[str(each_heads.value.name)])
                for each_heads in (attention.query, attention.key, attention.value)
            )
            moments.queries += np.einsum("thi,thj->hij", queries, queries)
            moments.keys += np.einsum("thi,tgj->higj", keys, keys, optimize=True)
            moments.values += np.einsum("thi,tgj->higj", values, values, optimize=True)
    return moments_of


def _frames(heads: Heads, array: Numbers) -> Array:
    """Return [frames, heads, d] of a call's array."""
    ordered = array.transpose(heads.batch_axis, heads.time_axis, heads.heads_axis, 3)
    found: Array = ordered.reshape(-1, *ordered.shape[2:]).astype(np.float64)
    return found


@dataclasses.dataclass
class OutputMoments:
    """How the contexts of one graph lie to the results of another, float64.

    Attributes:
        contexts: C^T C [heads * d, heads * d].
        mixed: C^T Y [heads * d, width].
        results: |Y|^2.
    """

    contexts: Array
    mixed: Array
    results: float = 0.0

    @classmethod
    def empty(cls, inside: int, width: int) -> "OutputMoments":
        """Return moments of no frames."""
        return cls(np.zeros((inside, inside)), np.zeros((inside, width)))

    def add(self, contexts: Array, results: Array) -> None:
        """Add frames: contexts [frames, heads * d] and results [frames, width]."""
        self.contexts += contexts.T @ contexts
        self.mixed += contexts.T @ results
        self.results += float(np.square(results).sum())

    def __add__(self, other: "OutputMoments") -> "OutputMoments":
        return OutputMoments(self.contexts + other.contexts, self.mixed + other.mixed, self.results + other.results)

    def error(self, weights: Array) -> float:
        """Return the relative error |Y - C W| / |Y|; 0 where there are no results."""
        squared = self.results - 2 * np.sum(self.mixed * weights) + np.sum(weights * (self.contexts @ weights))
        return float(np.sqrt(max(squared, 0.0) / self.results)) if self.results > 0 else 0.0


def output_moments(
    original: Lowered, output: str, bias: Array, merged: Lowered, context: str, streams: Sequence[Sequence[Feed]]
) -> tuple[OutputMoments, OutputMoments]:
    """Return moments of a merged graph's contexts and the original's results in the same calls.

    Args:
        original: the graph of the results.
        output: name of the value of `original` that its output projection returns, [.., width].
        bias: bias of that projection, float64 [width], which is subtracted from the results.
        merged: the graph of the contexts.
        context: name of the value of `merged` that its projection reads, [batch, time, heads * d].
        streams: feeds of one row.

    Returns:
        Moments of the streams to fit to, and of every fifth stream, to choose by; of a single stream, its calls or the
        later fifth of its frames.
    """
    fitted, held_out = OutputMoments.empty(0, 0), OutputMoments.empty(0, 0)
    pairs = zip(
        run_streams(exposed(original, [output]), streams), run_streams(exposed(merged, [context]), streams), strict=True
    )
    for right, got in pairs:
        contexts = _flat(got.outputs[context])
        results = _flat(right.outputs[output]) - bias
        if not fitted.contexts.size:
            fitted = OutputMoments.empty(contexts.shape[1], results.shape[1])
            held_out = OutputMoments.empty(contexts.shape[1], results.shape[1])
        cut = len(contexts) * 4 // 5 if len(streams) < 5 else len(contexts) * (right.stream % 5 != 4)
        fitted.add(contexts[:cut], results[:cut])
        held_out.add(contexts[cut:], results[cut:])
    return fitted, held_out


def _flat(array: Numbers) -> Array:
    found: Array = array.reshape(-1, array.shape[-1]).astype(np.float64)
    return found


STRENGTHS = tuple(10.0**power for power in range(-8, 3))
"""Of ridge regression, as shares of the mean of the contexts' power."""


def refitted(fitted: OutputMoments, kept: OutputMoments, weights: Array) -> Array:
    """Return output weights that fit the original's results better: ridge regression towards the given weights.

    (C^T C + s I) W = C^T Y + s W_0, with the s that does best on frames that it was not fitted to; W_0 itself where
    none does better. Plain least squares overfits small calibration sets.

    Args:
        fitted: moments to fit to.
        kept: moments to choose by.
        weights: W_0, float64 [heads * d, width].
    """
    scale = float(np.trace(fitted.contexts)) / max(len(fitted.contexts), 1)
    if scale <= 0:
        return weights
    chosen, least = None, kept.error(weights)
    for strength in STRENGTHS:
        error = kept.error(_ridge(fitted, weights, strength * scale))
        if error < least:
            chosen, least = strength, error
    if chosen is None:
        return weights
    every = fitted + kept
    return _ridge(every, weights, chosen * scale * every.results / max(fitted.results, np.finfo(float).tiny))


def _ridge(moments: OutputMoments, weights: Array, strength: float) -> Array:
    left = moments.contexts + strength * np.eye(len(moments.contexts))
    return np.asarray(np.linalg.solve(left, moments.mixed + strength * weights), np.float64)
