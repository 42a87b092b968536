"""The voice's language: known to the recogniser, told apart by side, spelt letter by letter."""

import itertools

import pytest

from examples.codec_tts import sentences
from examples.streaming_asr import text


def test_the_recogniser_knows_every_word() -> None:
    assert set(sentences.VOCABULARY) <= set(text.VOCABULARY)


def test_templates_and_random_sentences_use_the_vocabulary_only() -> None:
    drawn = list(itertools.islice(sentences.draw_sentences(1, "training"), 300))
    assert {word for sentence in drawn for word in sentence.split()} == set(sentences.VOCABULARY)


def test_no_sentence_is_on_two_sides() -> None:
    sides: tuple[text.Side, ...] = ("training", "development", "test")
    drawn = [set(itertools.islice(sentences.draw_sentences(1, side), 200)) for side in sides]
    assert not drawn[0] & drawn[1] and not drawn[0] & drawn[2] and not drawn[1] & drawn[2]


def test_spelling_counts_the_spaces_at_both_ends() -> None:
    assert "".join(sentences.LETTERS[token] for token in sentences.encode("turn  left")) == " turn left "


@pytest.mark.parametrize(
    ("sentence", "named"), [("turn starboard", "'starboard'"), ("", "'no word'"), ("Turn", "'Turn'")]
)
def test_other_words_are_refused(sentence: str, named: str) -> None:
    with pytest.raises(
        ValueError, match=f"expected words that the voice was trained on, got {named}; use some of: zero"
    ):
        sentences.encode(sentence)
