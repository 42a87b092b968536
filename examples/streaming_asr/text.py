"""The recogniser's language: a harbour vocabulary, a sentence generator, and the label table.

Sentences come from a template grammar with random slots; a share of them are random word sequences, so that word order
alone predicts little. Every sentence belongs to training, to development or to the test, decided by a checksum of its
own text, so no two sides can ever share one.
"""

import dataclasses
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

TOKENS_PATH = Path(__file__).with_name("tokens.txt")
BLANK = 0
"""CTC blank label."""

WORD_START = "▁"
"""Marks the first piece of a word."""

RANDOM_SHARE = 0.3
"""Share of sentences that are random word sequences."""

TEST_SHARE = 16
"""One sentence text in this many belongs to the test."""

DEVELOPMENT_SHARE = 64
"""One sentence text in this many belongs to development."""

Side = Literal["training", "development", "test"]

VOCABULARY_PATH = Path(__file__).with_name("vocabulary.txt")


def _read_slots(path: Path) -> dict[str, list[str]]:
    """Return the words of each slot, read from lines `slot word word ...`."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return {slot: words for slot, *words in lines}


SLOTS = _read_slots(VOCABULARY_PATH)
"""Slot name -> its words; templates name slots as {slot}, and slot "-" holds the words that only templates place."""

TEMPLATES = (
    "the {adjective} {vessel} {action} the {thing} {link} the {place}",
    "the {person} {action} {number} {adjective} {food} {link} the {place} {adverb}",
    "{adverb} the {person} and the {person} {action} the {adjective} {thing}",
    "expect {weather} and {weather} {link} the {place} until {day} {time}",
    "turn {direction} {link} the {adjective} {place} and report speed {number} {number}",
    "heading {number} {number} {number} depth {number} {unit}",
    "the {animal} was {adverb} {link} the {adjective} {vessel}",
    "{number} {number} {unit} {direction} {link} the {place}",
    "please signal the {vessel} {link} {day} {time} because the {thing} was {adjective}",
    "every {day} the {person} {action} {food} and {food} {link} {time}",
    "the {place} was {adjective} and {adjective} {link} the {weather}",
    "temperature {number} degrees {weather} from the {direction} {day} {time}",
    "{person} {number} will {link} the {place} report {thing} {thing} and {thing}",
    "the {adjective} {animal} {action} the {adjective} {person}",
    "{vessel} {number} {number} {number} please turn {direction}",
    "{day} {number} {time} {weather} {place}",
)

VOCABULARY: tuple[str, ...] = tuple(sorted({word for words in SLOTS.values() for word in words}))


def side_of(sentence: str) -> Side:
    """Return the side of a sentence: training (and calibration), choices, or test; never two of them."""
    checksum = zlib.crc32(sentence.encode())
    if checksum % TEST_SHARE == 0:
        return "test"
    return "development" if checksum % DEVELOPMENT_SHARE == 1 else "training"


def _draw_sentence(chance: random.Random) -> str:
    if chance.random() < RANDOM_SHARE:
        return " ".join(chance.choice(VOCABULARY) for _ in range(chance.randint(3, 9)))
    words = []
    for word in chance.choice(TEMPLATES).split():
        words.append(chance.choice(SLOTS[word[1:-1]]) if word.startswith("{") else word)
    return " ".join(words)


def draw_sentences(seed: int, side: Side) -> Iterator[str]:
    """Yield random sentences of one side, without end.

    Args:
        seed: equal seeds give equal sentences.
        side: side of the sentences.

    Yields:
        Lower-case words joined by single spaces.
    """
    chance = random.Random(seed)
    while True:
        sentence = _draw_sentence(chance)
        if side_of(sentence) == side:
            yield sentence


@dataclasses.dataclass(frozen=True)
class TokenTable:
    """The label table: text pieces by label.

    Attributes:
        pieces: piece of each label, label 0 first; label 0 is the CTC blank. A leading "▁" starts a word.
    """

    pieces: tuple[str, ...]

    def encode(self, text: str) -> list[int]:
        """Split a text into the fewest pieces, the longest last piece among equals.

        Args:
            text: words of the vocabulary joined by single spaces.

        Returns:
            Labels, none of them blank.

        Raises:
            ValueError: if a word cannot be spelt with the pieces of this table.
        """
        labels = {piece: label for label, piece in enumerate(self.pieces) if label != BLANK}
        return [label for word in text.split() for label in _spell(WORD_START + word, labels)]

    def decode(self, labels: list[int]) -> str:
        """Join the pieces of `labels`, without blanks or repeats removed, to words separated by single spaces."""
        return "".join(self.pieces[label] for label in labels).replace(WORD_START, " ").strip()


def _spell(marked_word: str, labels: dict[str, int]) -> list[int]:
    best: list[list[int] | None] = [[]] + [None] * len(marked_word)
    for end in range(1, len(marked_word) + 1):
        for start in range(end):
            head, label = best[start], labels.get(marked_word[start:end])
            current = best[end]
            if head is not None and label is not None and (current is None or len(head) + 1 < len(current)):
                best[end] = [*head, label]
    spelt = best[-1]
    if spelt is None:
        raise ValueError(
            f"TokenTable.encode: expected a word that the label table can spell, got "
            f"{marked_word[1:]!r}; write numbers as words and use lower-case words of the vocabulary"
        )
    return spelt


def read_tokens(path: Path = TOKENS_PATH) -> TokenTable:
    """Read a label table: one `piece label` per line, labels counting up from 0.

    Args:
        path: the table; the recogniser's own by default.

    Returns:
        The table.

    Raises:
        ValueError: if a line is not `piece label`, or the labels do not count up from 0.
    """
    pieces = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        piece, _, label = line.rpartition(" ")
        if not piece or label != str(number):
            raise ValueError(
                f"{path.name}, line {number + 1}: expected '<piece> {number}', got {line!r}; restore the table that "
                "the checkpoint was trained with"
            )
        pieces.append(piece)
    return TokenTable(tuple(pieces))
