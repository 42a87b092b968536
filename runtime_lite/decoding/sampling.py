"""Draws the next token of a sequence from its scores, with random numbers that depend on seed and step alone.

No generator is shared between sequences: the same scores, settings and seed give the same token, whichever sequences
run beside it.

Sources: nucleus sampling (Holtzman et al. 2019, arXiv 1904.09751); the repetition penalty of Keskar et al. 2019, arXiv
1909.05858, section 4.1; random numbers by the finaliser of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable
pseudorandom number generators", figure 16).
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime_lite.errors import BadInput, show

Scores = NDArray[np.floating]

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, odd: the distance of two states of SplitMix64."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when a sequence ends.

    Penalty, excluded tokens, temperature, `top_k` and `top_p` are applied in this order.

    Attributes:
        max_tokens: most tokens of a sequence, without the stop token.
        stop: tokens that end a sequence; they are not delivered.
        min_tokens: tokens before which no stop token is drawn.
        temperature: divides the scores, above 0; None takes the token of the highest score.
        top_k: number of tokens with the highest scores that may be drawn; None for all.
        top_p: the fewest likeliest tokens that together have this probability may be drawn, above 0 and at most 1.
        repetition_penalty: from 1 on; positive scores of recent tokens are divided by it, negative ones multiplied.
        penalty_window: number of recent tokens that are penalised.
        seed: from 0 to 2**63 - 1; equal seeds draw equal tokens from equal scores.

    Raises:
        BadInput: a setting is out of its range; the message names it.
    """

    max_tokens: int
    stop: frozenset[int] = frozenset()
    min_tokens: int = 0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    penalty_window: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every setting."""
        _require_integer("max_tokens", self.max_tokens, 1)
        _require_integer("min_tokens", self.min_tokens, 0, self.max_tokens)
        if not isinstance(self.stop, frozenset | set | tuple | list) or any(
            type(token) is not int or token < 0 for token in self.stop
        ):
            raise _refused("stop", "a set of tokens from 0 on", self.stop)
        object.__setattr__(self, "stop", frozenset(self.stop))
        if self.temperature is not None:
            _require_number("temperature", self.temperature, above=0.0, most=math.inf)
        if self.top_k is not None:
            _require_integer("top_k", self.top_k, 1)
        _require_number("top_p", self.top_p, above=0.0, most=1.0)
        _require_number("repetition_penalty", self.repetition_penalty, above=math.nextafter(1.0, 0.0), most=math.inf)
        _require_integer("penalty_window", self.penalty_window, 1)
        _require_integer("seed", self.seed, 0, 2**63 - 1)


def _require_integer(name: str, number: object, least: int, most: int | None = None) -> None:
    if type(number) is not int or number < least or (most is not None and number > most):
        limit = "on" if most is None else f"to {most}"
        raise _refused(name, f"an integer from {least} {limit}", number)


def _require_number(name: str, number: object, *, above: float, most: float) -> None:
    if type(number) not in (int, float) or not above < number <= most or math.isinf(number):  # type: ignore[operator, arg-type]
        limit = "" if math.isinf(most) else f" and at most {most:g}"
        raise _refused(name, f"a number above {above:g}{limit}", number)


def _refused(name: str, expected: str, got: object) -> BadInput:
    return BadInput(f"Sampling: {name}: expected {expected}, got {show(got)}; correct it, or leave it out")


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
