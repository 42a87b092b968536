"""The shipped audio is complete, and the streams have the shapes that the compiler is promised."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile

from examples.streaming_asr import data, features, synthesize, text

FOLDERS = (data.TESTSET_FOLDER, data.CALIBRATION_FOLDER, data.DEMO_FOLDER)


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def test_test_set_is_large_enough_and_small_enough() -> None:
    entries = data.read_manifest()
    long = [entry for entry in entries if entry.seconds > 60]
    assert len(entries) - len(long) >= 200
    assert len(long) >= 20
    assert _megabytes(data.TESTSET_FOLDER) <= 10
    assert _megabytes(data.CALIBRATION_FOLDER) <= 1
    assert _megabytes(data.DEMO_FOLDER) <= 1.5


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_recording_opens_and_lasts_as_long_as_stated(folder: Path) -> None:
    entries = data.read_manifest(folder)
    assert {entry.file for entry in entries} == {path.name for path in folder.iterdir()} - {data.MANIFEST_NAME}
    for entry in entries:
        assert soundfile.info(folder / entry.file).duration == pytest.approx(entry.seconds, abs=0.002)
        assert set(entry.text.split()) <= set(text.VOCABULARY)


def test_voices_of_the_test_set_are_never_trained_on() -> None:
    training = set(synthesize.TRAINING_VARIANTS)
    held_out = set(synthesize.HELD_OUT_VARIANTS)
    assert not training & held_out
    assert {entry.voice.partition("+")[2] for entry in data.read_manifest()} <= held_out
    assert {entry.voice.partition("+")[2] for entry in data.read_manifest(data.CALIBRATION_FOLDER)} <= training


def test_first_verification_stream_has_a_hundred_chunks() -> None:
    stream = next(data.verification())
    assert len(stream) >= 100
    assert all(list(feed) == ["features"] for feed in stream)
    assert {feed["features"].shape for feed in stream} == {(1, features.CALL_FRAMES, features.BINS)}
    assert {feed["features"].dtype for feed in stream} == {np.dtype(np.float32)}


def test_calibration_streams_outlast_the_window() -> None:
    streams = list(itertools.islice(data.calibration(), 3))
    assert min(len(stream) for stream in streams) > 9


def test_recordings_carry_name_chunks_and_reference() -> None:
    recording = next(data.recordings())
    assert recording.name == "short-000"
    assert recording.chunks
    assert recording.reference == data.read_manifest()[0].text


def test_missing_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected the file 'transcripts.tsv'.*make_testset"):
        data.read_manifest(tmp_path)


def test_recording_at_another_rate_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros((100, 2), np.float32), 8000)
    with pytest.raises(ValueError, match="expected 16000 Hz and 1 channel, got 8000 Hz and 2"):
        data.read_stream(tmp_path / "a.wav")
