"""Vocabulary, sentences and the label table."""

import itertools
from pathlib import Path

import pytest

from examples.streaming_asr import data, text


def test_training_and_held_out_sentences_are_disjoint() -> None:
    training = set(itertools.islice(text.draw_sentences(1, held_out=False), 5000))
    held_out = set(itertools.islice(text.draw_sentences(1, held_out=True), 1000))
    assert not training & held_out
    assert all(text.is_held_out(sentence) for sentence in held_out)


def test_short_test_sentences_are_held_out() -> None:
    short = [entry.text for entry in data.read_manifest() if entry.seconds <= data.LONG_S]
    assert len(short) >= 200
    assert all(text.is_held_out(sentence) for sentence in short)


def test_equal_seeds_give_equal_sentences() -> None:
    first, second = (list(itertools.islice(text.draw_sentences(9, held_out=False), 50)) for _ in range(2))
    assert first == second


def test_label_table_spells_every_word() -> None:
    tokens = text.read_tokens()
    assert len(text.VOCABULARY) >= 300
    for word in text.VOCABULARY:
        assert tokens.decode(tokens.encode(word)) == word


def test_sentences_use_the_vocabulary_only() -> None:
    words = {
        word for sentence in itertools.islice(text.draw_sentences(2, held_out=False), 2000) for word in sentence.split()
    }
    assert words <= set(text.VOCABULARY)
    assert len(words) >= 300


def test_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'Ω'; write numbers as words"):
        text.read_tokens().encode("the Ω")


def test_broken_label_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("<blank> 0\nab 2\n")
    with pytest.raises(ValueError, match="line 2: expected '<piece> 1', got 'ab 2'"):
        text.read_tokens(tmp_path / "tokens.txt")
