"""Makes the shipped audio: test set, development set, calibration recordings and demo recordings.

    python -m examples.streaming_asr.make_testset
    python -m examples.streaming_asr.make_testset devset

Needs the `espeak-ng` program and `soxr`. Test and demo recordings are spoken by voices and say sentences that
training never sees, those of the development set come from neither; calibration recordings are like training
recordings. Ends with one line per set.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import soxr

from examples import command
from examples.streaming_asr import data, features, synthesize, text

SHORT_RECORDINGS = 220
LONG_RECORDINGS = 22
DEVELOPMENT_SHORT_RECORDINGS = 54
DEVELOPMENT_LONG_RECORDINGS = 6
LONG_S = (63.5, 67.0)
"""Shortest and longest aim for a long recording: all of them fill at least 100 chunks."""

CALIBRATION_RECORDINGS = 12
TEST = synthesize.Conditions(snr_db=(15.0, 35.0), gain_db=(-12.0, 0.0), clean_share=0.1, codec_share=0.0)
CALIBRATION = synthesize.Conditions(codec_share=0.0)
DEMO = synthesize.Conditions(gain_db=(-4.0, -2.0), clean_share=1.0, codec_share=0.0)


def _speak_for(
    seconds: float, voice: synthesize.SpokenVoice, chance: random.Random, side: text.Side
) -> tuple[synthesize.Samples, str]:
    """Speak sentences with one voice, joined until `seconds` are full; return the samples and the text."""
    sentences = text.draw_sentences(chance.getrandbits(32), side)
    passage = synthesize.speak_passage([first := next(sentences)], voice, chance)
    spoken = [first]
    while len(passage) < seconds * features.SAMPLE_RATE_HZ:
        spoken.append(next(sentences))
        passage = np.concatenate([passage, synthesize.speak_passage([spoken[-1]], voice, chance)])
    return passage, " ".join(spoken)


def _write(path: Path, samples: synthesize.Samples) -> None:
    soundfile.write(path, samples, features.SAMPLE_RATE_HZ, format="OGG", subtype="OPUS")


def _entry(path: Path, samples: synthesize.Samples, voice: synthesize.SpokenVoice, spoken: str) -> data.Entry:
    return data.Entry(path.name, len(samples) / features.SAMPLE_RATE_HZ, voice.name, spoken)


def _empty(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()


def make_set(
    folder: Path, aims_s: dict[str, float], conditions: synthesize.Conditions, seed: int, side: text.Side
) -> None:
    """Write one folder of Opus recordings with its `transcripts.tsv`.

    Args:
        folder: emptied first.
        aims_s: seconds after which no sentence is added, by file name without its ending.
        conditions: noise and gain of the recordings.
        seed: equal seeds give equal recordings.
        side: side of the voices and sentences.
    """
    _empty(folder)
    chance = random.Random(seed)
    babble = synthesize.speak_babble(chance, side)
    entries = []
    for name, seconds in aims_s.items():
        voice = synthesize.draw_voice(chance, side)
        passage, spoken = _speak_for(seconds, voice, chance, side)
        path = folder / f"{name}.opus"
        _write(path, synthesize.spoil(passage, conditions, babble, chance))
        entries.append(_entry(path, passage, voice, spoken))
    data.write_manifest(folder, entries)


def make_demo(folder: Path, seed: int) -> None:
    """Write the two demo recordings: a short one in stereo at 44.1 kHz, a long one in mono at 16 kHz, both FLAC.

    Args:
        folder: emptied first.
        seed: equal seeds give equal recordings.
    """
    _empty(folder)
    chance = random.Random(seed)
    entries = []
    for name, seconds in (("short", 8.0), ("long", 68.0)):
        voice = synthesize.draw_voice(chance, "test")
        passage, spoken = _speak_for(seconds, voice, chance, "test")
        samples = synthesize.spoil(passage, DEMO, [], chance)
        path = folder / f"{name}.flac"
        if name == "short":
            resampled = soxr.resample(samples, features.SAMPLE_RATE_HZ, 44100)
            soundfile.write(path, np.stack([resampled, resampled], axis=1), 44100, subtype="PCM_16")
        else:
            soundfile.write(path, samples, features.SAMPLE_RATE_HZ, subtype="PCM_16")
        entries.append(_entry(path, passage, voice, spoken))
    data.write_manifest(folder, entries)


def _aims_s(seed: int, short: int, long: int) -> dict[str, float]:
    chance = random.Random(seed)
    aims_s = {f"short-{index:03}": 0.0 for index in range(short)}
    return aims_s | {f"long-{index:03}": chance.uniform(*LONG_S) for index in range(long)}


def make_testset() -> None:
    """Write the test set."""
    make_set(data.TESTSET_FOLDER, _aims_s(70, SHORT_RECORDINGS, LONG_RECORDINGS), TEST, 71, "test")


def make_devset() -> None:
    """Write the development set, with noise like that of the test set."""
    aims_s = _aims_s(74, DEVELOPMENT_SHORT_RECORDINGS, DEVELOPMENT_LONG_RECORDINGS)
    make_set(data.DEVSET_FOLDER, aims_s, TEST, 75, "development")


def make_calibration() -> None:
    """Write the calibration recordings."""
    chance = random.Random(70)
    for _ in range(LONG_RECORDINGS):
        chance.uniform(*LONG_S)  # the lengths follow those of the test set
    aims_s = {f"calibration-{index:03}": chance.uniform(10.0, 24.0) for index in range(CALIBRATION_RECORDINGS)}
    make_set(data.CALIBRATION_FOLDER, aims_s, CALIBRATION, 72, "training")


SETS: dict[Path, Callable[[], None]] = {
    data.TESTSET_FOLDER: make_testset,
    data.DEVSET_FOLDER: make_devset,
    data.CALIBRATION_FOLDER: make_calibration,
    data.DEMO_FOLDER: lambda: make_demo(data.DEMO_FOLDER, 73),
}


def main() -> None:
    """Make all sets anew, or those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {[folder.name for folder in SETS]}; all by default")
    wanted = parser.parse_args().sets
    if unknown := set(wanted) - {folder.name for folder in SETS}:
        parser.error(f"expected names of {[folder.name for folder in SETS]}, got {sorted(unknown)}")
    for folder, make in SETS.items():
        if wanted and folder.name not in wanted:
            continue
        make()
        entries = data.read_manifest(folder)
        megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        print(f"{folder.name}: {len(entries)} recordings, {sum(e.seconds for e in entries):.0f} s, {megabytes:.2f} MB")


if __name__ == "__main__":
    command.run(main)
