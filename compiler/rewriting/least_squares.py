"""Fits the weights of a projection by least squares, so that a changed graph reproduces the original's results.

Sums over all frames of all calls, in double precision; nothing else of the frames is kept. Frames with NaN are padding
(compiler/calib/watched_streams.py) and are left out.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compiler.calib.watched_streams import run_streams
from compiler.graph.runners.instrumented import exposed
from compiler.graph.stages import Array as Numbers
from compiler.graph.stages import Feed, Lowered

Array = npt.NDArray[np.float64]


@dataclasses.dataclass
class OutputMoments:
    """How what a projection of one graph reads relates to the results of another graph's, float64.

    Attributes:
        contexts: C^T C [inside, inside] of what is read.
        mixed: C^T Y [inside, width].
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
        """Add frames: contexts [frames, inside] and results [frames, width]; frames with NaN are padding."""
        valid = np.isfinite(contexts).all(axis=1) & np.isfinite(results).all(axis=1)
        contexts, results = contexts[valid], results[valid]
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
    original: Lowered,
    output: str,
    bias: Array,
    changed: Lowered,
    context: str,
    streams: Sequence[Sequence[Feed]],
    *,
    with_ones: bool = False,
) -> tuple[OutputMoments, OutputMoments]:
    """Return moments of what a projection of a changed graph reads and of the original's results in the same calls.

    Args:
        original: the graph of the results.
        output: name of the value of `original` that its output projection returns, [.., width].
        bias: bias of that projection, float64 [width], which is subtracted from the results.
        changed: the graph whose projection is fitted.
        context: name of the value of `changed` that this projection reads, [.., inside].
        streams: feeds of one row.
        with_ones: whether a 1 stands behind the numbers of every frame, so that the bias is fitted with the weights.

    Returns:
        Moments of the streams to fit to, and of every fifth stream, to choose by; of a single stream, its calls or the
        later fifth of its frames.
    """
    fitted, held_out = OutputMoments.empty(0, 0), OutputMoments.empty(0, 0)
    pairs = zip(
        run_streams(exposed(original, [output]), streams),
        run_streams(exposed(changed, [context]), streams),
        strict=True,
    )
    for right, got in pairs:
        contexts = _flat(got.outputs[context])
        contexts = np.column_stack([contexts, np.ones(len(contexts))]) if with_ones else contexts
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
