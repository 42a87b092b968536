"""Word error rate."""

import pytest

from examples.streaming_asr import metric


def test_rate_counts_all_three_kinds_of_error() -> None:
    assert metric.wer(["one two three four", "five six"], ["one too three", "five six seven"]) == pytest.approx(3 / 6)


def test_equal_texts_give_zero() -> None:
    assert metric.wer(["one two"], ["one two"]) == 0.0


def test_empty_hypothesis_counts_every_word() -> None:
    assert metric.wer(["one two"], [""]) == 1.0


@pytest.mark.parametrize(
    ("references", "hypotheses", "message"),
    [
        (["one"], [], "got 1 references and 0 hypotheses; give an empty text"),
        ([], [], "expected at least one reference, got none"),
        (["one", " "], ["one", "two"], "got an empty text at index 1"),
    ],
)
def test_unusable_texts_are_refused(references: list[str], hypotheses: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric.wer(references, hypotheses)
