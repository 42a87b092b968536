"""The shipped audio is complete, its sets are apart, and the streams have the shapes that the compiler is promised."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import soundfile

from examples.streaming_asr import data, features, synthesize, text

SIDES: dict[Path, text.Side] = {
    data.TESTSET_FOLDER: "test",
    data.DEVSET_FOLDER: "development",
    data.CALIBRATION_FOLDER: "training",
    data.DEMO_FOLDER: "test",
}

SHARDS_OF_THE_CHECKPOINT = (*range(1000, 1054), *range(7000, 7030))
"""Seeds of all shards that the shipped checkpoint was trained on; see train.py."""

MOST_SENTENCES = 1000
"""More sentences than the 1200 s of a shard hold."""


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def test_test_set_is_large_enough_and_small_enough() -> None:
    entries = data.read_manifest()
    long = [entry for entry in entries if entry.seconds > 60]
    assert len(entries) - len(long) >= 200
    assert len(long) >= 20
    assert _megabytes(data.TESTSET_FOLDER) <= 10
    assert _megabytes(data.DEVSET_FOLDER) <= 3
    assert _megabytes(data.CALIBRATION_FOLDER) <= 1
    assert _megabytes(data.DEMO_FOLDER) <= 1.5


def test_development_set_has_short_recordings_and_some_that_overflow_the_window() -> None:
    seconds = [entry.seconds for entry in data.read_manifest(data.DEVSET_FOLDER)]
    assert sum(each <= data.LONG_S for each in seconds) >= 50
    assert sum(each > data.LONG_S for each in seconds) >= 6


@pytest.mark.parametrize("folder", SIDES, ids=lambda folder: folder.name)
def test_every_recording_opens_and_lasts_as_long_as_stated(folder: Path) -> None:
    entries = data.read_manifest(folder)
    assert {entry.file for entry in entries} == {path.name for path in folder.iterdir()} - {data.MANIFEST_NAME}
    for entry in entries:
        assert soundfile.info(folder / entry.file).duration == pytest.approx(entry.seconds, abs=0.002)
        assert set(entry.text.split()) <= set(text.VOCABULARY)


@pytest.mark.parametrize(("folder", "side"), SIDES.items(), ids=lambda each: getattr(each, "name", each))
def test_voices_of_every_set_are_those_of_its_side(folder: Path, side: text.Side) -> None:
    assert {entry.voice.partition("+")[2] for entry in data.read_manifest(folder)} <= set(synthesize.VARIANTS[side])


def test_no_voice_speaks_for_two_sides() -> None:
    assert set(synthesize.VARIANTS) == set(get_args(text.Side))
    voices = [voice for side in synthesize.VARIANTS.values() for voice in side]
    assert len(voices) == len(set(voices))


def _consists_of(words: list[str], side: text.Side) -> bool:
    """Whether words can be cut into sentences of one side."""
    ends = {0}
    for start in (start for start in range(len(words)) if start in ends):
        pieces = range(start + 3, min(start + 17, len(words)) + 1)
        ends |= {end for end in pieces if text.side_of(" ".join(words[start:end])) == side}
    return len(words) in ends


@pytest.mark.parametrize(("folder", "side"), SIDES.items(), ids=lambda each: getattr(each, "name", each))
def test_every_recording_says_sentences_of_its_side(folder: Path, side: text.Side) -> None:
    for entry in data.read_manifest(folder):
        assert _consists_of(entry.text.split(), side), entry.file


def _sentences_of_training() -> Iterator[str]:
    """All that the shipped checkpoint may have heard: it was trained when development had no side of its own."""
    for seed in SHARDS_OF_THE_CHECKPOINT:
        chance = random.Random(seed)
        for most in (MOST_SENTENCES, 24):
            sentences = random.Random(chance.getrandbits(32))
            yield from (text._draw_sentence(sentences) for _ in range(most))


@pytest.mark.slow
def test_the_shipped_checkpoint_has_heard_no_sentence_of_the_development_set() -> None:
    heard = {sentence for sentence in _sentences_of_training() if text.side_of(sentence) == "development"}
    assert len(heard) > 500
    said = [f" {entry.text} " for entry in data.read_manifest(data.DEVSET_FOLDER)]
    assert not [sentence for sentence in heard if any(f" {sentence} " in each for each in said)]


def test_first_development_streams_are_long_and_short_in_turns() -> None:
    names = [Path(entry.file).stem for entry in itertools.islice(data._development_entries(), 11)]
    assert names == ["long-000", *(f"short-{index:03}" for index in range(9)), "long-001"]
    first = next(data.development_recordings())
    assert first.name == names[0]
    np.testing.assert_equal(first.chunks, next(data.development()))
    assert len(first.chunks) >= 100


def test_every_recording_of_the_development_set_is_drawn() -> None:
    entries = data.read_manifest(data.DEVSET_FOLDER)
    assert sorted(entry.file for entry in data._development_entries()) == sorted(entry.file for entry in entries)


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
