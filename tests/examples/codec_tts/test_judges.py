"""The judges: what they say of signals whose truth is known."""

import numpy as np
import pytest

from examples.codec_tts import judges, prompt


def _vowel(hertz: float, formant_hz: float, seconds: float = 0.4) -> judges.Samples:
    """A buzz whose overtones are loud near one frequency."""
    turns = np.arange(int(seconds * 16000) // 160 * 160) / 16000 * hertz
    places = np.arange(1, 30) * hertz
    gains = np.exp(-(((places - formant_hz) / 400.0) ** 2)) + 0.02
    return np.asarray(sum(gain * np.sin(2 * np.pi * k * turns) for k, gain in enumerate(gains, 1)) * 0.1, np.float32)


def test_a_sentence_is_at_no_distance_from_itself_at_any_level() -> None:
    spoken = np.concatenate([_vowel(120.0, 500.0), _vowel(120.0, 2000.0)])
    assert judges.mel_distance(spoken, spoken) == pytest.approx(0.0, abs=1e-6)
    assert judges.mel_distance(spoken, np.asarray(0.25 * spoken, np.float32)) == pytest.approx(0.0, abs=1e-3)


def test_slower_speech_is_nearer_than_other_speech() -> None:
    spoken = np.concatenate([_vowel(120.0, 500.0), _vowel(120.0, 2000.0)])
    slower = np.concatenate([_vowel(120.0, 500.0, 0.5), _vowel(120.0, 2000.0, 0.5)])
    other = np.concatenate([_vowel(120.0, 2000.0), _vowel(120.0, 500.0)])
    assert judges.mel_distance(spoken, slower) < 0.3 * judges.mel_distance(spoken, other)


def test_a_voice_is_most_like_itself() -> None:
    low, high = ([_vowel(hertz, formant) for formant in (500.0, 1500.0)] for hertz in (100.0, 210.0))
    timbres = [judges.timbre(low), judges.timbre(high)]
    everyone = judges.mean_timbre(timbres)
    again = judges.timbre([_vowel(103.0, 500.0), _vowel(103.0, 1500.0)])
    own, other = (judges.similarity(again, each, everyone) for each in timbres)
    assert own > 0.8 and other < -0.5


def test_silence_has_a_timbre_and_a_level() -> None:
    silence = np.zeros(3200, np.float32)
    np.testing.assert_array_equal(prompt.levelled(silence), silence)
    found = judges.timbre([silence])
    assert found.octave == 0.0 and np.isfinite(found.spectrum).all()


def test_silence_is_heard_as_no_words() -> None:
    assert judges.Recogniser().transcribe(np.zeros(8000, np.float32)) == ""
