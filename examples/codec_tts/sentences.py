"""The sentences of the voice: short commands of 26 words, all of them words of the recogniser that measures it.

A share of the sentences are random word sequences, so that word order alone predicts little. Every sentence belongs to
training, to development or to the test by a checksum of its own text, as in the recogniser's language.
"""

import random
from collections.abc import Iterator

from examples.streaming_asr import text

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIRECTIONS = ("north", "south", "east", "west", "left", "right")
THINGS = ("speed", "depth", "heading", "signal")
REMAINING = ("turn", "report", "please", "metres", "degrees", "and")
VOCABULARY = (*NUMBERS, *DIRECTIONS, *THINGS, *REMAINING)

TEMPLATES = (
    "turn {direction}",
    "please turn {direction}",
    "turn {direction} {number} degrees",
    "heading {number} {number} {number}",
    "{thing} {number} {number}",
    "depth {number} {number} metres",
    "report {thing} and {thing}",
    "please report {thing}",
    "{number} {number} metres {direction}",
    "turn {direction} and report {thing}",
)
SLOTS = {"direction": DIRECTIONS, "number": NUMBERS, "thing": THINGS}

RANDOM_SHARE = 0.4
"""Share of sentences that are random word sequences."""

RANDOM_WORDS = (2, 5)
"""Fewest and most words of a random sequence."""

LETTERS = " abcdefghijklmnopqrstuvwxyz"
"""The text tokens: a letter's number is its place here."""


def _draw_sentence(chance: random.Random) -> str:
    if chance.random() < RANDOM_SHARE:
        return " ".join(chance.choice(VOCABULARY) for _ in range(chance.randint(*RANDOM_WORDS)))
    words = chance.choice(TEMPLATES).split()
    return " ".join(chance.choice(SLOTS[word[1:-1]]) if word.startswith("{") else word for word in words)


def draw_sentences(seed: int, side: text.Side) -> Iterator[str]:
    """Yield random sentences of one side, without end.

    Args:
        seed: equal seeds give equal sentences.
        side: side of the sentences.

    Yields:
        Words of `VOCABULARY`, joined by single spaces.
    """
    chance = random.Random(seed)
    while True:
        sentence = _draw_sentence(chance)
        if text.side_of(sentence) == side:
            yield sentence


def encode(sentence: str) -> list[int]:
    """Convert a sentence to text tokens, with one space before and one after it.

    Args:
        sentence: words of `VOCABULARY`, joined by single spaces.

    Returns:
        One number per letter and space.

    Raises:
        ValueError: if a word is not in the vocabulary.
    """
    words = sentence.split()
    unknown = [word for word in words if word not in VOCABULARY]
    if unknown or not words:
        raise ValueError(
            f"encode: expected words that the voice was trained on, got {' '.join(unknown) or 'no word'!r}; "
            f"use some of: {' '.join(VOCABULARY)}"
        )
    return [LETTERS.index(letter) for letter in f" {' '.join(words)} "]
