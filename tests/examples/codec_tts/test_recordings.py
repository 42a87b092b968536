"""Recordings: trimmed to codec frames, kept and read again; the voices themselves where espeak-ng is installed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from examples.codec_tts import generation, pitch, prompt, recordings
from examples.streaming_asr import synthesize

NO_ESPEAK = shutil.which("espeak-ng") is None


def test_trimming_keeps_the_loud_part_and_fills_frames() -> None:
    samples = np.zeros(16000, np.float32)
    samples[5000:9000] = 0.3
    kept = recordings.trim(samples)
    assert len(kept) % generation.CODE_SAMPLES == 0
    assert np.flatnonzero(kept).tolist() == list(range(640, 4640))
    assert 4640 + 639 <= len(kept) < 4640 + 640 + generation.CODE_SAMPLES


def test_trimming_silence_leaves_a_margin() -> None:
    assert len(recordings.trim(np.zeros(16000, np.float32))) == 640


def test_what_was_written_is_read(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    written = [
        recordings.Recording(
            generator.integers(-9, 9, frames * generation.CODE_SAMPLES).astype(np.int16),
            sentence,
            voice,
            generator.random(2 * frames).astype(np.float32),
        )
        for frames, sentence, voice in ((5, "turn left", 0), (3, "speed one two", 2))
    ]
    recordings.write(tmp_path / "training.npz", written)
    for ours, theirs in zip(recordings.read(tmp_path / "training.npz"), written, strict=True):
        np.testing.assert_array_equal(ours.samples, theirs.samples)
        np.testing.assert_array_equal(ours.pitch_hz, theirs.pitch_hz)
        assert (ours.sentence, ours.voice) == (theirs.sentence, theirs.voice)
    assert [each.name for each in tmp_path.iterdir()] == ["training.npz"]


def test_missing_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"got no file; run examples.codec_tts.recordings first"):
        recordings.read(tmp_path / "training.npz")


def test_the_recogniser_heard_the_voices_in_training() -> None:
    assert set(recordings.VOICES) <= set(synthesize.TRAINING_VARIANTS)


@pytest.mark.skipif(NO_ESPEAK, reason="the program espeak-ng is not installed")
@pytest.mark.parametrize("voice", range(len(recordings.VOICES)))
def test_a_spoken_sentence_is_whole_frames_with_a_pitch_of_each_half(voice: int) -> None:
    spoken = recordings.record("turn left", voice)
    assert len(spoken.pitch_hz) * pitch.HOP == len(spoken.samples)
    assert len(spoken.samples) % generation.CODE_SAMPLES == 0
    assert 0.3 < np.abs(spoken.waveform).max() <= 0.51


def test_prompts_are_half_a_second_of_every_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    loud = recordings.Recording(
        generator.integers(-9000, 9000, 20000).astype(np.int16), "turn left", 0, np.empty(0, np.float32)
    )
    monkeypatch.setattr(recordings, "record", lambda sentence, voice: loud)
    recordings.write_prompts(tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(recordings.VOICES)
    samples, rate = soundfile.read(tmp_path / "f2.flac", dtype="int16")
    assert rate == 16000
    np.testing.assert_array_equal(samples, loud.samples[9920:17920])


def test_shipped_prompts_are_of_the_voices() -> None:
    assert sorted(path.stem for path in prompt.FOLDER.iterdir()) == sorted(recordings.VOICES)
    for path in prompt.FOLDER.iterdir():
        assert soundfile.info(path).frames == prompt.SAMPLES
