"""The beam finds what the sum over all alignments says, and the language model is a distribution."""

import itertools
import math

import numpy as np
import pytest

from examples.captions import rescoring
from examples.captions.rescoring import Rescorer, WordPairs
from examples.streaming_asr import text

PIECES = ("<blank>", "▁a", "▁ab", "b", "c")
TOKENS = text.TokenTable(PIECES)
VOCABULARY = ("a", "ab", "abc", "ac")
PAIRS = WordPairs(["a ab", "ab abc", "ac a a"])


def spelled() -> dict[tuple[int, ...], str]:
    """Return every text of few words by its labels."""
    found = {}
    for count in range(6):
        for words in itertools.product(VOCABULARY, repeat=count):
            found[tuple(label for word in words for label in TOKENS.encode(word))] = " ".join(words)
    return found


def scores_of(logits: np.ndarray, weight: float) -> dict[str, float]:
    """Return the logarithm of every text's probability, by all alignments, with the language model's."""
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    known, sums = spelled(), dict[str, float]()
    for path in itertools.product(range(len(PIECES)), repeat=len(logs)):
        labels = tuple(label for label, _ in itertools.groupby(path) if label != text.BLANK)
        if labels in known:
            log = float(sum(logs[place, label] for place, label in enumerate(path)))
            sums[known[labels]] = sums.get(known[labels], 0.0) + math.exp(log)
    found = {}
    for words, probability in sums.items():
        language = sum(PAIRS.log_probability(*pair) for pair in itertools.pairwise(["", *words.split()]))
        found[words] = math.log(probability) + weight * language
    return found


@pytest.mark.parametrize("weight", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(8))
def test_the_best_texts_are_those_of_all_alignments(weight: float, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescoring, "BEAM", 10_000)
    logits = np.random.default_rng(seed).normal(size=(5, len(PIECES))).astype(np.float32)
    right = scores_of(logits, weight)
    ordered = sorted(right, key=lambda words: right[words], reverse=True)
    found = Rescorer(TOKENS, PAIRS, weight, VOCABULARY).best(logits, 3)
    assert len(found) == 3
    for one, other in zip(found, ordered[:3], strict=True):
        assert right[one] == pytest.approx(right[other], abs=1e-5)


def test_a_word_that_is_not_complete_is_left_out() -> None:
    logits = np.zeros((1, len(PIECES)), np.float32)
    logits[0, 2] = 20.0
    assert Rescorer(TOKENS, PAIRS, 0.6, ("abc",)).best(logits) == [""]


def test_an_utterance_of_silence_has_no_words() -> None:
    logits = np.zeros((9, len(PIECES)), np.float32)
    logits[:, text.BLANK] = 20.0
    assert Rescorer(TOKENS, PAIRS, 0.6, VOCABULARY).best(logits) == [""]


@pytest.mark.parametrize("before", ["", "the", "harbour", "unknown"])
def test_probabilities_behind_a_word_add_up_to_one(before: str) -> None:
    pairs = WordPairs(itertools.islice(text.draw_sentences(1, "training"), 500))
    total = sum(math.exp(pairs.log_probability(before, word)) for word in text.VOCABULARY)
    assert total == pytest.approx(1.0, abs=1e-9)
