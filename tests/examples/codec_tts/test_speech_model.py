"""The speech model on random weights: who sees whom, and what positions mean."""

import dataclasses

import pytest
import torch

from examples.codec_tts import sentences, speech_model

TINY = dataclasses.replace(speech_model.SMALL, layers=2, width=64, feed_forward=96)


@pytest.fixture(scope="module")
def model() -> speech_model.SpeechModel:
    torch.manual_seed(1)
    return speech_model.SpeechModel(TINY).eval()


def _scores(model: speech_model.SpeechModel, text: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        scores: torch.Tensor = model(text, codes)
        return scores


TEXT = torch.tensor([sentences.encode("turn left")])
CODES = torch.arange(100, 120)[None]


def test_later_codes_change_no_earlier_score(model: speech_model.SpeechModel) -> None:
    other = CODES.clone()
    other[0, 12:] = 7
    ours, theirs = _scores(model, TEXT, CODES), _scores(model, TEXT, other)
    torch.testing.assert_close(ours[:, :12], theirs[:, :12], atol=1e-5, rtol=0)
    assert not torch.allclose(ours[:, 12:], theirs[:, 12:], atol=1e-3)
    torch.testing.assert_close(_scores(model, TEXT, CODES[:, :12]), ours[:, :12], atol=1e-5, rtol=0)


@pytest.mark.parametrize("letter", [0, 4, 10])
def test_every_letter_reaches_every_score(model: speech_model.SpeechModel, letter: int) -> None:
    other = TEXT.clone()
    other[0, letter] = 26
    changed = (_scores(model, TEXT, CODES) - _scores(model, other, CODES)).abs().amax(dim=-1)
    assert (changed > 1e-5).all()


def test_text_sees_all_of_the_text_and_no_audio(model: speech_model.SpeechModel) -> None:
    heard: list[torch.Tensor] = []
    hook = model.layers[-1].register_forward_hook(lambda module, given, result: heard.append(result))
    other = TEXT.clone()
    other[0, -1] = 26
    _scores(model, TEXT, CODES), _scores(model, TEXT, CODES + 1), _scores(model, other, CODES)
    hook.remove()
    letters = TEXT.shape[1]
    torch.testing.assert_close(heard[0][:, :letters], heard[1][:, :letters], atol=1e-5, rtol=0)
    assert ((heard[0] - heard[2])[0, 0].abs() > 1e-5).any()


def test_rows_of_a_batch_do_not_meet(model: speech_model.SpeechModel) -> None:
    pair = _scores(model, TEXT.expand(2, -1), torch.cat([CODES, CODES + 40]))
    torch.testing.assert_close(pair[:1], _scores(model, TEXT, CODES), atol=1e-5, rtol=0)


def test_turned_products_depend_on_the_distance_only() -> None:
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(1, 1, 1, 8, generator=generator), torch.randn(1, 1, 1, 8, generator=generator)
    rates = torch.tensor([1.0, 0.3, 0.1, 0.03])

    def product(at: float, other: float) -> float:
        turned = [speech_model.turn(each, place * rates[None]) for each, place in ((query, at), (key, other))]
        return float((turned[0] * turned[1]).sum())

    assert product(5.0, 2.0) == pytest.approx(product(25.0, 22.0), abs=1e-4)
    assert product(5.0, 2.0) != pytest.approx(product(5.0, 3.0), abs=1e-3)


def test_the_shipped_sizes_have_16_heads() -> None:
    assert speech_model.SMALL.heads == speech_model.FULL.heads == 16
    assert (speech_model.FULL.layers, speech_model.FULL.width) == (12, 1024)
