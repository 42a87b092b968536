"""Generates codes one after the other: picks each code by its scores, ends the sentence, and draws the noise.

The original models and a bundle of them use the same code; the caller passes a function that returns the next scores.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

ENTRIES = 512
"""Entries of the codec's first codebook."""

BOUNDARY = ENTRIES
"""The token between prompt and speech, and behind the speech."""

PROMPT_FRAMES = 25
"""Codes of prompt audio: 0.5 s."""

CODE_SAMPLES = 320
"""Samples per code, at 16 kHz."""

LONGEST_FRAMES = 300
"""A sentence that has not ended after 6 s is cut off."""

FIRST_CODES = 5
"""Codes of the first sound, 0.1 s."""

PACKET_CODES = 10
"""Codes of later sounds, 0.2 s."""

Codes = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Pick = Callable[[Scores], int]
"""Scores of the next code, float32 [513], to the code that is taken."""


def greedy(scores: Scores) -> int:
    """Return the likeliest code; of equal ones the first."""
    return int(scores.argmax())


def sampling(temperature: float, seed: int) -> Pick:
    """Return a function that draws codes at a temperature, with one random number per code.

    Args:
        temperature: above 0; the scores are divided by it.
        seed: equal seeds draw equal codes from equal scores.

    Returns:
        What draws.

    Raises:
        ValueError: if the temperature is not above 0.
    """
    if not temperature > 0.0:
        raise ValueError(
            f"sampling: expected a temperature above 0, got {temperature}; leave it out for the likeliest codes"
        )
    chance = np.random.default_rng(seed)

    def pick(scores: Scores) -> int:
        weights = np.exp((scores.astype(np.float64) - scores.max()) / temperature)
        bounds = np.cumsum(weights)
        return int(np.searchsorted(bounds, chance.random() * bounds[-1], side="right"))

    return pick


def picking(temperature: float | None, seed: int) -> Pick:
    """Return `greedy` without a temperature, else `sampling`."""
    return greedy if temperature is None else sampling(temperature, seed)


def generate(first: Scores, following: Callable[[int], Scores], pick: Pick) -> Iterator[int]:
    """Generate the codes of one sentence.

    Args:
        first: scores after text, prompt and boundary, float32 [513].
        following: takes a code and returns the scores after it.
        pick: `greedy`, or the result of `sampling`.

    Yields:
        Codes of the first codebook, without boundaries; at most `LONGEST_FRAMES`.
    """
    code = pick(first)
    for spoken in range(1, LONGEST_FRAMES + 1):
        if code == BOUNDARY:
            return
        yield code
        if spoken < LONGEST_FRAMES:
            code = pick(following(code))


def packets(codes: Iterator[int]) -> Iterator[list[int]]:
    """Group codes as they come: `FIRST_CODES`, then `PACKET_CODES` again and again, finally the rest."""
    count = FIRST_CODES
    while packet := list(itertools.islice(codes, count)):
        yield packet
        count = PACKET_CODES


def noise(frames: int, seed: int) -> npt.NDArray[np.float32]:
    """Return the noise for consonants: normal float32 [frames, 320]; a longer one begins with the shorter ones."""
    return np.random.default_rng(seed).standard_normal((frames, CODE_SAMPLES), dtype=np.float32)
