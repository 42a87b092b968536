"""Vocabulary, sentences and the label table."""

import itertools
from pathlib import Path
from typing import get_args

import pytest

from examples.streaming_asr import data, text


def test_no_two_sides_share_a_sentence() -> None:
    drawn = {side: set(itertools.islice(text.draw_sentences(1, side), 200)) for side in get_args(text.Side)}
    for side, sentences in drawn.items():
        assert {text.side_of(sentence) for sentence in sentences} == {side}
    assert len(set().union(*drawn.values())) == sum(map(len, drawn.values()))


@pytest.mark.parametrize(
    ("folder", "count", "side"), [(data.TESTSET_FOLDER, 200, "test"), (data.DEVSET_FOLDER, 50, "development")]
)
def test_short_recordings_say_sentences_of_their_side(folder: Path, count: int, side: text.Side) -> None:
    short = [entry.text for entry in data.read_manifest(folder) if entry.seconds <= data.LONG_S]
    assert len(short) >= count
    assert {text.side_of(sentence) for sentence in short} == {side}


def test_equal_seeds_give_equal_sentences() -> None:
    first, second = (list(itertools.islice(text.draw_sentences(9, "training"), 50)) for _ in range(2))
    assert first == second


def test_label_table_spells_every_word() -> None:
    tokens = text.read_tokens()
    assert len(text.VOCABULARY) >= 300
    for word in text.VOCABULARY:
        assert tokens.decode(tokens.encode(word)) == word


def test_sentences_use_the_vocabulary_only() -> None:
    words = {
        word for sentence in itertools.islice(text.draw_sentences(2, "training"), 2000) for word in sentence.split()
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
