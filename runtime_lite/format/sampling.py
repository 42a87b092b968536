"""Defines the settings by which tokens are drawn, e.g. temperature, `top_k`, `top_p` and the stop tokens."""

import math
from dataclasses import dataclass

from runtime_lite.errors import BadInput, show


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
