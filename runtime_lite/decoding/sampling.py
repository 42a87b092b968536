"""Draws the next token of a sequence from its scores, with random numbers that depend on seed and step alone.

No generator is shared between sequences: the same scores, settings and seed give the same token, whichever sequences
run beside it.

Sources: nucleus sampling (Holtzman et al. 2019, arXiv 1904.09751); the repetition penalty of Keskar et al. 2019, arXiv
1909.05858, section 4.1; random numbers by the finaliser of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable
pseudorandom number generators", figure 16).
"""

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime_lite.format.sampling import Sampling

Scores = NDArray[np.floating]

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, odd: the distance of two states of SplitMix64."""


class Draw(NamedTuple):
    """A drawn token.

    Attributes:
        token: the token.
        margin: how far the decision was from another one: with a temperature, the distance in probability from the
            drawn number to the nearest boundary of the token; without, the lead of the highest score over the second.
    """

    token: int
    margin: float


class Sampler:
    """Draws the tokens of one sequence.

    Args:
        sampling: the settings.
    """

    def __init__(self, sampling: Sampling) -> None:
        """Start before the first token."""
        self._sampling = sampling
        self._key = _mixed(sampling.seed)
        self._count = 0
        self._recent: deque[int] = deque(maxlen=sampling.penalty_window)
        self._stop = np.array(sorted(sampling.stop), np.int64)

    def take(self, scores: Scores) -> Draw:
        """Draw the next token.

        Args:
            scores: of every token, [tokens]; higher is likelier, as logits or log-probabilities are.

        Raises:
            ValueError: a score is NaN, or no token may be drawn.
        """
        weighed = scores.astype(np.float64)
        if np.isnan(weighed).any():
            raise ValueError("expected scores that are numbers, got NaN")
        settings = self._sampling
        if settings.repetition_penalty != 1.0 and self._recent:
            recent = np.unique(np.fromiter(self._recent, np.int64))
            recent = recent[recent < weighed.size]
            penalised = weighed[recent]
            weighed[recent] = np.where(
                penalised > 0, penalised / settings.repetition_penalty, penalised * settings.repetition_penalty
            )
        if self._count < settings.min_tokens:
            weighed[self._stop[self._stop < weighed.size]] = -np.inf
        if not weighed.size or weighed.max() == -np.inf:
            raise ValueError("expected a score above -inf, got none")
        draw = _highest(weighed) if settings.temperature is None else self._drawn(weighed / settings.temperature)
        self._count += 1
        self._recent.append(draw.token)
        return draw

    def _drawn(self, scores: NDArray[np.float64]) -> Draw:
        weights = np.exp(scores - scores.max())
        if self._sampling.top_k is not None and self._sampling.top_k < weights.size:
            weights[_order(weights)[self._sampling.top_k :]] = 0.0
        if self._sampling.top_p < 1.0:
            order = _order(weights)
            in_front = np.cumsum(weights[order]) - weights[order]
            weights[order[in_front >= self._sampling.top_p * weights.sum()]] = 0.0
        bounds = np.cumsum(weights)
        drawn = _number(self._key, self._count) * bounds[-1]
        token = int(np.searchsorted(bounds, drawn, side="right"))
        below = 0.0 if token == 0 else float(bounds[token - 1])
        return Draw(token, float(min(drawn - below, bounds[token] - drawn) / bounds[-1]))


def _highest(scores: NDArray[np.float64]) -> Draw:
    token = int(scores.argmax())
    second = np.delete(scores, token).max(initial=-np.inf)
    return Draw(token, float(scores[token] - second))


def _order(weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the tokens from the likeliest on; of equal ones the first comes first."""
    return np.argsort(-weights, kind="stable")


def _mixed(word: int) -> int:
    """Return the finaliser of SplitMix64 of a 64-bit word."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _number(key: int, step: int) -> float:
    """Return the random number of a step, at least 0 and below 1."""
    return float(_mixed((key + (step + 1) * _GOLDEN) & _WORD) >> 11) * 2.0**-53
