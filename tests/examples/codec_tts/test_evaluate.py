"""The table of judgements, on the shipped prompts: what is right is said to be right, and what is wrong wrong."""

from pathlib import Path

import numpy as np
import pytest

from examples.codec_tts import evaluate, judges, prompt, recordings, speak
from examples.streaming_asr import transcribe

SENTENCE = "report heading"


@pytest.fixture(scope="module")
def truth() -> list[recordings.Recording]:
    """The four prompts as if they said a sentence."""
    waves = [transcribe.read_recording(prompt.of_voice(voice)) for voice in recordings.VOICES]
    samples = [np.asarray(np.round(wave * 32768), np.int16) for wave in waves]
    return [recordings.Recording(each, SENTENCE, voice, np.empty(0, np.float32)) for voice, each in enumerate(samples)]


@pytest.fixture
def hearing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recogniser understands every sentence."""
    monkeypatch.setattr(judges.Recogniser, "transcribe", lambda self, samples: SENTENCE)


@pytest.mark.usefixtures("hearing")
def test_the_recordings_are_at_no_distance_from_themselves(truth: list[recordings.Recording]) -> None:
    row = evaluate.judge("truth", [each.waveform for each in truth], truth)
    assert row == "| truth | 0.0% | 0.00 | 1.00 | 100% | 1.00 |"


@pytest.mark.usefixtures("hearing")
def test_other_voices_are_told_from_the_right_ones(truth: list[recordings.Recording]) -> None:
    row = evaluate.judge("others", [each.waveform for each in truth[::-1]], truth)
    assert row.split("|")[5].strip() == "0%"


@pytest.mark.usefixtures("hearing")
def test_length_and_silence_are_judged(truth: list[recordings.Recording]) -> None:
    spoken = [np.zeros(0, np.float32), *(each.waveform for each in truth[1:])]
    assert evaluate.judge("silent", spoken, truth).split("|")[4].strip() == "0.75"


def test_words_are_those_that_the_recogniser_hears(
    truth: list[recordings.Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judges.Recogniser, "transcribe", lambda self, samples: "report depth")
    assert evaluate.judge("wrong", [each.waveform for each in truth], truth).split("|")[2].strip() == "50.0%"


@pytest.mark.parametrize("books", [1, 4])
def test_the_codec_speaks_the_recording_s_length(truth: list[recordings.Recording], books: int) -> None:
    spoken = evaluate.through_codec(speak.original_codec(), books)(truth[2])
    assert len(spoken) == len(truth[2].samples)
    assert judges.mel_distance(spoken, truth[2].waveform) < 2.0


def test_what_was_said_is_kept(tmp_path: Path) -> None:
    evaluate.write(tmp_path / "kept", "codec, first codebook", [np.zeros(320, np.float32)] * 2)
    names = ["000-codec-first-codebook.wav", "001-codec-first-codebook.wav"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == names
