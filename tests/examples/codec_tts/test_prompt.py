"""A prompt is half a second at a level of its own, or refused."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from examples.codec_tts import prompt


def test_what_comes_later_is_not_heard_and_the_level_is_made_equal(tmp_path: Path) -> None:
    samples = np.random.default_rng(1).standard_normal(9000).astype(np.float32) * 0.1
    samples[8500] = 0.9
    soundfile.write(tmp_path / "long.wav", samples, 16000, subtype="FLOAT")
    read = prompt.read(tmp_path / "long.wav")
    assert read.shape == (prompt.SAMPLES,) and read.dtype == np.float32
    assert float(np.abs(read).max()) == pytest.approx(prompt.LOUDEST)
    np.testing.assert_allclose(read / read[0], samples[:8000] / samples[0], rtol=1e-5)


def test_a_prompt_that_is_too_short_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "short.wav", np.full(4000, 0.1), 16000)
    with pytest.raises(ValueError, match=r"short.wav: expected at least 0.5 s of speech, got 0.25 s; record more"):
        prompt.read(tmp_path / "short.wav")
