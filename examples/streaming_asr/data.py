"""Recordings as streams of feeds, for calibration, for choices, for verification, and for the task's metric.

A *stream* is a list of feeds, one per chunk, in order; a feed is `{"features": float32 [1, 67, 80]}`. Caches are not
part of a feed; the code that runs a stream passes them from call to call.
"""

import csv
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from examples.streaming_asr import features

TESTSET_FOLDER = Path(__file__).with_name("testset")
DEVSET_FOLDER = Path(__file__).with_name("devset")
CALIBRATION_FOLDER = Path(__file__).with_name("calibration")
DEMO_FOLDER = Path(__file__).with_name("demo")
MANIFEST_NAME = "transcripts.tsv"
LONG_S = 60.0
"""Recordings longer than this count as long."""

VERIFICATION_LONG = 4
VERIFICATION_SHORT = 12
"""Verification takes this many long and short recordings of the test set: about 500 chunks."""

DEVELOPMENT_SHORT_PER_LONG = 9
"""So many short recordings of the development set come behind each long one, so that the first 20 are like all."""

Feed = dict[str, npt.NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a manifest.

    Attributes:
        file: name of the audio file, in the manifest's folder.
        seconds: length of the recording.
        voice: name of the espeak-ng voice.
        text: the spoken words, separated by single spaces.
    """

    file: str
    seconds: float
    voice: str
    text: str


@dataclasses.dataclass(frozen=True)
class Recording:
    """One recording of the test set or the development set.

    Attributes:
        name: file name without its ending, such as "long-003".
        chunks: its stream, one feed per chunk.
        reference: the spoken words.
    """

    name: str
    chunks: list[Feed]
    reference: str


def write_manifest(folder: Path, entries: list[Entry]) -> None:
    """Write `transcripts.tsv`: a header line, then one line per recording.

    Args:
        folder: the folder of the recordings.
        entries: the entries in order.
    """
    with (folder / MANIFEST_NAME).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerow(field.name for field in dataclasses.fields(Entry))
        rows.writerows((each.file, f"{each.seconds:.3f}", each.voice, each.text) for each in entries)


def read_manifest(folder: Path = TESTSET_FOLDER) -> list[Entry]:
    """Read `transcripts.tsv` of a folder.

    Args:
        folder: the test set by default.

    Returns:
        Its entries in file order.

    Raises:
        FileNotFoundError: if the folder has no manifest.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"read_manifest: expected the file {MANIFEST_NAME!r} in folder {folder.name!r}, got none; "
            "make the sets with python -m examples.streaming_asr.make_testset"
        )
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Entry(row["file"], float(row["seconds"]), row["voice"], row["text"]) for row in rows]


def read_stream(path: Path) -> list[Feed]:
    """Return the stream of one recording.

    Args:
        path: audio file at 16 kHz with one channel.

    Returns:
        One feed per chunk; the last one is padded with zero samples.

    Raises:
        ValueError: if the file has another rate or more channels.
    """
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    if rate != features.SAMPLE_RATE_HZ or samples.shape[1] != 1:
        raise ValueError(
            f"{path.name}: expected 16000 Hz and 1 channel, got {rate} Hz and {samples.shape[1]}; "
            "use examples.streaming_asr.transcribe for other recordings"
        )
    return [{"features": chunk[np.newaxis]} for chunk in features.feature_chunks(samples[:, 0])]


def calibration() -> Iterator[list[Feed]]:
    """Yield streams to calibrate with: recordings like those of training, none of the test set.

    Yields:
        One stream per calibration recording, about 25 chunks each.
    """
    for entry in read_manifest(CALIBRATION_FOLDER):
        yield read_stream(CALIBRATION_FOLDER / entry.file)


def development() -> Iterator[list[Feed]]:
    """Yield streams to choose on: the development set, which shares no voice and no sentence with other sets.

    Yields:
        One stream per recording, each long one followed by nine short ones.
    """
    for recording in development_recordings():
        yield recording.chunks


def development_recordings() -> Iterator[Recording]:
    """Yield every recording of the development set with its reference.

    Yields:
        Recordings in the order of `development`.
    """
    for entry in _development_entries():
        yield _recording(DEVSET_FOLDER, entry)


def _development_entries() -> Iterator[Entry]:
    entries = read_manifest(DEVSET_FOLDER)
    short = iter([entry for entry in entries if entry.seconds <= LONG_S])
    for long in (entry for entry in entries if entry.seconds > LONG_S):
        yield from (long, *itertools.islice(short, DEVELOPMENT_SHORT_PER_LONG))


def verification() -> Iterator[list[Feed]]:
    """Yield streams to verify with: recordings of the test set, long ones of 100 chunks and more first.

    Yields:
        One stream per recording.
    """
    entries = read_manifest(TESTSET_FOLDER)
    long = [entry for entry in entries if entry.seconds > LONG_S]
    short = [entry for entry in entries if entry.seconds <= LONG_S]
    for entry in [*long[:VERIFICATION_LONG], *short[:VERIFICATION_SHORT]]:
        yield read_stream(TESTSET_FOLDER / entry.file)


def recordings() -> Iterator[Recording]:
    """Yield every recording of the test set with its reference, for the word error rate.

    Yields:
        Recordings in manifest order, the short ones first.
    """
    for entry in read_manifest(TESTSET_FOLDER):
        yield _recording(TESTSET_FOLDER, entry)


def _recording(folder: Path, entry: Entry) -> Recording:
    return Recording(Path(entry.file).stem, read_stream(folder / entry.file), entry.text)


def read_utterance(path: Path) -> Feed:
    """Return all features of one recording in one feed, `{"features": float32 [1, frames, 80]}`.

    Args:
        path: audio file at 16 kHz with one channel.

    Raises:
        ValueError: if the file has another rate or more channels.
    """
    chunks = [feed["features"] for feed in read_stream(path)]
    return {"features": np.concatenate([*(chunk[:, : features.HOP_FRAMES] for chunk in chunks[:-1]), chunks[-1]], 1)}


def utterances() -> Iterator[list[Feed]]:
    """Yield short recordings of the test set, one feed each.

    Yields:
        One stream of one feed per recording.
    """
    for recording in whole_recordings():
        yield recording.chunks


def whole_recordings() -> Iterator[Recording]:
    """Yield every short recording of the test set as one feed, with its reference.

    Yields:
        Recordings in manifest order.
    """
    for entry in read_manifest(TESTSET_FOLDER):
        if entry.seconds <= LONG_S:
            name = Path(entry.file).stem
            yield Recording(name, [read_utterance(TESTSET_FOLDER / entry.file)], entry.text)


def random_features() -> Iterator[list[Feed]]:
    """Yield streams of random features, for untrained models: 120 and 30 chunks, the same in every run."""
    generator = np.random.default_rng(7)
    for chunks in (120, 30):
        yield [{"features": generator.standard_normal((1, 67, 80), dtype=np.float32)} for _ in range(chunks)]


def random_calibration() -> Iterator[list[Feed]]:
    """Yield two streams of 30 chunks of other random features, the same in every run."""
    generator = np.random.default_rng(8)
    for _ in range(2):
        yield [{"features": generator.standard_normal((1, 67, 80), dtype=np.float32)} for _ in range(30)]
