"""Codes one after the other: which code follows from its scores, when a sentence ends, and the noise it is heard with.

The same for the original models and for a bundle of them: whoever speaks says how the next scores are found.
"""

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

Codes = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Pick = Callable[[Scores], int]
"""Scores of the next code, float32 [513], to the code that is taken."""


def greedy(scores: Scores) -> int:
    """The likeliest code; the first of equals."""
    return int(scores.argmax())


def sampling(temperature: float, seed: int) -> Pick:
    """Draws codes at a temperature; one draw of the generator per code.

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
    """As a command line says it: `greedy` without a temperature, else `sampling`."""
    return greedy if temperature is None else sampling(temperature, seed)


def generate(first: Scores, following: Callable[[int], Scores], pick: Pick) -> Iterator[int]:
    """Speak one sentence in codes.

    Args:
        first: scores behind text, prompt and boundary, float32 [513].
        following: takes a code to the scores behind it.
        pick: `greedy`, or what `sampling` gives.

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


def noise(frames: int, seed: int) -> npt.NDArray[np.float32]:
    """What consonants are made of: standard normal float32 [frames, 320]; a longer one begins with the shorter ones."""
    return np.random.default_rng(seed).standard_normal((frames, CODE_SAMPLES), dtype=np.float32)
