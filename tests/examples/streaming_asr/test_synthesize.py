"""Noise and gain; the voices themselves where espeak-ng is installed."""

import random
import shutil

import numpy as np
import pytest

from examples.streaming_asr import synthesize

NO_ESPEAK = shutil.which("espeak-ng") is None


def _tone() -> synthesize.Samples:
    return np.asarray(0.3 * np.sin(np.arange(32000) * 0.05), np.float32)


@pytest.mark.parametrize("kind", ["white", "pink", "babble"])
def test_noise_has_the_asked_ratio(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    monkeypatch.setattr(chance, "choice", lambda kinds: kind)
    conditions = synthesize.Conditions(snr_db=(20.0, 20.0), gain_db=(-6.0, -6.0), clean_share=0.0, codec_share=0.0)
    babble = [np.random.default_rng(index).standard_normal(9000).astype(np.float32) for index in range(6)]
    spoiled = synthesize.spoil(_tone(), conditions, babble, chance)
    gain = 10 ** (-6 / 20)
    noise = spoiled / gain - _tone()
    ratio_db = 10 * np.log10(np.mean(_tone() ** 2) / np.mean(noise**2))
    assert ratio_db == pytest.approx(20.0, abs=0.5)


def test_equal_seeds_spoil_equally() -> None:
    babble = [_tone()] * synthesize.BABBLE_SPEAKERS
    first, second = (synthesize.spoil(_tone(), synthesize.TRAINING, babble, random.Random(5)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first).max() <= 1.0


@pytest.mark.skipif(NO_ESPEAK, reason="the program espeak-ng is not installed")
@pytest.mark.parametrize("accent", synthesize.ACCENTS)
def test_every_accent_takes_variants(accent: str) -> None:
    first, second = (
        synthesize.speak("harbour", synthesize.SpokenVoice(accent, variant), 160, 50) for variant in ("m3", "f2")
    )
    assert len(first) != len(second) or np.abs(first - second).max() > 0.05


def test_missing_espeak_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="expected the program 'espeak-ng', got none; install"):
        synthesize.speak("harbour", synthesize.SpokenVoice("en", "m1"), 160, 50)


def test_stretching_keeps_the_speech_and_changes_its_length() -> None:
    samples = np.sin(np.arange(16000, dtype=np.float32) * 0.1)
    slower = synthesize.stretch(samples, 1.25)
    assert abs(len(slower) - 20000) <= 2
    assert slower.dtype == np.float32
    spectrum = np.abs(np.fft.rfft(slower[:16000]))
    assert abs(int(spectrum.argmax()) / 16000 * 2 * np.pi - 0.1 / 1.25) < 1e-3
