"""The pitch of signals whose pitch is known."""

import numpy as np
import pytest

from examples.codec_tts import pitch


def _buzz(hertz: float, seconds: float) -> pitch.Samples:
    """A tone with 20 overtones."""
    turns = np.arange(int(seconds * pitch.SAMPLE_RATE_HZ)) * hertz / pitch.SAMPLE_RATE_HZ
    return np.asarray(sum(np.cos(2 * np.pi * k * turns) / k for k in range(1, 20)) * 0.1, np.float32)


@pytest.mark.parametrize("hertz", [75.0, 110.0, 220.0, 350.0])
def test_a_buzz_has_its_pitch(hertz: float) -> None:
    found, voiced = pitch.track(_buzz(hertz, 0.5))
    assert voiced[3:-3].all()
    np.testing.assert_allclose(found[3:-3], hertz, rtol=0.02)


def test_a_strong_octave_does_not_become_the_pitch() -> None:
    turns = np.arange(8000) * 110.0 / pitch.SAMPLE_RATE_HZ
    samples = 0.1 * np.cos(2 * np.pi * turns) + 0.2 * np.cos(4 * np.pi * turns)
    found, _ = pitch.track(samples.astype(np.float32))
    np.testing.assert_allclose(found[3:-3], 110.0, rtol=0.02)


def test_unvoiced_stretches_take_the_pitch_of_their_neighbours() -> None:
    low, high = _buzz(100.0, 0.3), _buzz(200.0, 0.3)
    found, voiced = pitch.track(np.concatenate([low, np.zeros(4800, np.float32), high]))
    assert not voiced[35:55].any()
    assert (np.diff(found[25:65]) >= 0).all()
    assert found[45] == pytest.approx(np.sqrt(100.0 * 200.0), rel=0.1)


def test_noise_and_silence_are_unvoiced() -> None:
    noise = np.random.default_rng(1).standard_normal(8000).astype(np.float32) * 0.1
    assert pitch.track(noise)[1].mean() < 0.2
    found, voiced = pitch.track(np.zeros(1600, np.float32))
    assert not voiced.any()
    np.testing.assert_array_equal(found, np.full(10, pitch.NEUTRAL_HZ, np.float32))


def test_a_recording_without_samples_has_no_values() -> None:
    assert len(pitch.track(np.zeros(0, np.float32))[0]) == 0
