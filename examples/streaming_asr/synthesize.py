"""Speaks random sentences with espeak-ng in many voices, adds noise, and writes feature shards for training.

    python -m examples.streaming_asr.synthesize --hours 18 --output FOLDER

Needs the `espeak-ng` program and `soxr`. A third of the hours are long recordings: several sentences joined with
pauses, so that the recogniser is trained on streams far beyond its window of 5.12 s, silence included.
"""

import argparse
import dataclasses
import io
import multiprocessing
import random
import subprocess
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from examples import command
from examples.streaming_asr import features, text

ACCENTS = (
    "en-us",
    "en",
    "en-gb-scotland",
    "en-029",
    "en-gb-x-rp",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-us-nyc",
)
"""Accents that take variants. The name "en-gb" silently ignores the variant, so British English goes by "en"."""

TRAINING_VARIANTS = (
    *("m1", "m2", "m4", "m5", "m6", "m8", "f1", "f2", "f4", "f5"),
    *("adam", "Alex", "Alicia", "Andy", "aunty", "belinda", "boris", "david", "Denis", "Gene", "Hugo", "john", "linda"),
    *("Mario", "Michael", "Mike", "pablo", "paul", "quincy", "rob", "robert", "Storm", "travis"),
)
DEVELOPMENT_VARIANTS = (
    *("Andrea", "anika", "antonio", "ed", "edward", "grandma"),
    *("gustave", "Marco", "pedro", "shelby", "steph", "victor"),
)
TEST_VARIANTS = ("m3", "m7", "f3", "Annie", "max", "benjamin", "Lee", "sandro")
VARIANTS: dict[text.Side, tuple[str, ...]] = {
    "training": TRAINING_VARIANTS,
    "development": DEVELOPMENT_VARIANTS,
    "test": TEST_VARIANTS,
}
"""No side hears a variant of another."""

SHARD_SECONDS = 1200.0
LONG_SHARE = 0.36
"""Share of the seconds in recordings of several sentences."""

STRETCH_SHARE = 0.67
STRETCH = (0.8, 1.25)
"""This share of the training recordings is played slower or faster by a factor in this range, which moves formants and
pitch with it (speed perturbation, Ko et al. 2015): voices differ more than the variants of one synthesiser."""

BABBLE_SPEAKERS = 5

Samples = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Noise and gain of recordings.

    Attributes:
        snr_db: lowest and highest signal-to-noise ratio.
        gain_db: lowest and highest gain applied last.
        clean_share: share of recordings without noise, that is with digital silence in the pauses.
        codec_share: share of recordings that pass through Opus.
    """

    snr_db: tuple[float, float] = (10.0, 40.0)
    gain_db: tuple[float, float] = (-20.0, 3.0)
    clean_share: float = 0.15
    codec_share: float = 0.08


TRAINING = Conditions()


@dataclasses.dataclass(frozen=True)
class SpokenVoice:
    """One espeak-ng voice.

    Attributes:
        accent: the language part, such as "en-gb-scotland".
        variant: the timbre part, such as "m3".
    """

    accent: str
    variant: str

    @property
    def name(self) -> str:
        """The name of the voice in espeak-ng, such as "en-us+m3"."""
        return f"{self.accent}+{self.variant}"


def draw_voice(chance: random.Random, side: text.Side) -> SpokenVoice:
    """Return a random accent with a random variant of one side.

    Args:
        chance: source of randomness.
        side: side of the variants.

    Returns:
        The voice.
    """
    return SpokenVoice(chance.choice(ACCENTS), chance.choice(VARIANTS[side]))


def speak(sentence: str, voice: SpokenVoice, words_per_minute: int, pitch: int) -> Samples:
    """Speak one sentence with espeak-ng.

    Args:
        sentence: the words to speak.
        voice: who speaks.
        words_per_minute: speed, 80 to 450.
        pitch: 0 to 99; 50 is the voice's own.

    Returns:
        float32 [samples] at 16 kHz, loudest sample 0.5 in magnitude.

    Raises:
        FileNotFoundError: espeak-ng is missing.
        RuntimeError: espeak-ng returns no sound.
    """
    call = ["espeak-ng", "-v", voice.name, "-s", str(words_per_minute), "-p", str(pitch), "--stdout", sentence]
    try:
        spoken = subprocess.run(call, check=True, capture_output=True).stdout
    except FileNotFoundError as error:
        raise FileNotFoundError(
            "speak: expected the program 'espeak-ng', got none; install the package espeak-ng"
        ) from error
    # The header of a piped WAV file states no true length: skip it and read the 16-bit samples as they are.
    start = spoken.index(b"data") + 8
    rate = int.from_bytes(spoken[24:28], "little")
    samples = np.frombuffer(spoken[start : start + (len(spoken) - start) // 2 * 2], np.int16).astype(np.float32) / 32768
    resampled = np.asarray(soxr.resample(samples, rate, features.SAMPLE_RATE_HZ), np.float32)
    peak = float(np.abs(resampled).max(initial=0.0))
    if peak == 0.0:
        raise RuntimeError(
            f"speak: expected speech from voice {voice.name!r}, got silence; install the espeak-ng voices"
        )
    return np.asarray(resampled * (0.5 / peak), np.float32)


def silence(seconds: float) -> Samples:
    """Return zero samples, float32 [seconds * 16000]."""
    return np.zeros(int(seconds * features.SAMPLE_RATE_HZ), np.float32)


def _draw_pause_s(chance: random.Random) -> float:
    return chance.uniform(2.0, 7.0) if chance.random() < 0.06 else chance.uniform(0.2, 0.8)


def speak_passage(sentences: list[str], voice: SpokenVoice, chance: random.Random) -> Samples:
    """Speak sentences in turn, each at its own speed and pitch, with pauses before, between and after.

    Args:
        sentences: at least one.
        voice: who speaks.
        chance: source of randomness.

    Returns:
        float32 [samples] at 16 kHz. Pauses last 0.2 to 0.8 s, now and then 2 to 7 s.
    """
    parts = [silence(chance.uniform(0.05, 0.6))]
    for index, sentence in enumerate(sentences):
        parts += [silence(_draw_pause_s(chance))] if index else []
        parts.append(speak(sentence, voice, chance.randint(130, 190), chance.randint(30, 70)))
    return np.concatenate([*parts, silence(chance.uniform(0.05, 0.6))])


def stretch(samples: Samples, factor: float) -> Samples:
    """Play samples slower (factor above 1) or faster; pitch and formants fall or rise with it.

    Args:
        samples: float32 [samples].
        factor: length of the result relative to the samples.

    Returns:
        float32 [about samples * factor].
    """
    rate = features.SAMPLE_RATE_HZ
    return np.asarray(soxr.resample(samples, rate, round(rate * factor)), np.float32)


def _pink_noise(length: int, generator: np.random.Generator) -> Samples:
    spectrum = np.fft.rfft(generator.standard_normal(length))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1.0))
    return np.asarray(np.fft.irfft(spectrum, length), np.float32)


def _noise(kind: str, length: int, babble: list[Samples], generator: np.random.Generator) -> Samples:
    if kind == "white":
        return generator.standard_normal(length).astype(np.float32)
    if kind == "pink":
        return _pink_noise(length, generator)
    mixed: Samples = np.zeros(length, np.float32)
    for speaker in generator.choice(len(babble), BABBLE_SPEAKERS, replace=False):
        mixed += np.roll(np.resize(babble[speaker], length), int(generator.integers(length)))
    return mixed


def spoil(samples: Samples, conditions: Conditions, babble: list[Samples], chance: random.Random) -> Samples:
    """Add white, pink or babble noise, apply a gain, and encode a share of the recordings with Opus.

    Args:
        samples: float32 [samples] at 16 kHz.
        conditions: amounts of noise and gain.
        babble: recordings to mix babble from, at least 5.
        chance: source of randomness.

    Returns:
        float32 [samples], clipped to [-1, 1].
    """
    generator = np.random.default_rng(chance.getrandbits(64))
    if chance.random() >= conditions.clean_share:
        noise = _noise(chance.choice(("white", "pink", "babble")), len(samples), babble, generator)
        loud = samples[np.abs(samples) > 0.01]
        ratio = 10 ** (-chance.uniform(*conditions.snr_db) / 20)
        samples = samples + noise * (np.sqrt(np.mean(loud**2) / np.mean(noise**2)) * ratio)
    gain = 10 ** (chance.uniform(*conditions.gain_db) / 20)
    spoiled: Samples = np.asarray(np.clip(samples * gain, -1.0, 1.0), np.float32)
    if chance.random() < conditions.codec_share:
        packed = io.BytesIO()
        soundfile.write(packed, spoiled, features.SAMPLE_RATE_HZ, format="OGG", subtype="OPUS")
        packed.seek(0)
        spoiled = np.asarray(soundfile.read(packed, dtype="float32")[0], np.float32)
    return spoiled


def speak_babble(chance: random.Random, side: text.Side) -> list[Samples]:
    """Return recordings to mix babble from.

    Args:
        chance: source of randomness.
        side: side of the voices and the sentences.

    Returns:
        24 recordings, each float32 [samples] at 16 kHz.
    """
    sentences = text.draw_sentences(chance.getrandbits(32), side)
    return [speak_passage([next(sentences)], draw_voice(chance, side), chance) for _ in range(24)]


def write_shard(path: Path, seed: int) -> float:
    """Write one shard: `frames` float16 [frames, 80], `ends` int64 [recordings], `sentences` [recordings] of text.

    Recordings are padded with zero samples to full chunks, as at run time.

    Args:
        path: the `.npz` file to write.
        seed: equal seeds give equal shards.

    Returns:
        Seconds of audio in the shard.
    """
    chance = random.Random(seed)
    sentences = text.draw_sentences(chance.getrandbits(32), "training")
    babble = speak_babble(chance, "training")
    frames: list[npt.NDArray[np.float16]] = []
    texts: list[str] = []
    seconds, long_seconds = 0.0, 0.0
    while seconds < SHARD_SECONDS:
        is_long = long_seconds < LONG_SHARE * seconds
        spoken = [next(sentences) for _ in range(chance.randint(3, 6) if is_long else 1)]
        passage = speak_passage(spoken, draw_voice(chance, "training"), chance)
        if chance.random() < STRETCH_SHARE:
            passage = stretch(passage, chance.uniform(*STRETCH))
        samples = spoil(passage, TRAINING, babble, chance)
        seconds += len(samples) / features.SAMPLE_RATE_HZ
        long_seconds += len(samples) / features.SAMPLE_RATE_HZ if is_long else 0.0
        frames.append(features.log_mel(features.pad_to_chunks(samples)).astype(np.float16))
        texts.append(" ".join(spoken))
    partial = path.with_suffix(".partial.npz")
    ends = np.cumsum([len(each) for each in frames])
    np.savez(partial, frames=np.concatenate(frames), ends=ends, sentences=np.array(texts))
    partial.rename(path)
    return seconds


def _write_numbered_shard(task: tuple[Path, int, int]) -> float:
    folder, seed, index = task
    return write_shard(folder / f"shard-{index:03}.npz", seed * 1000 + index)


def main() -> None:
    """Write the shards that `train.py` reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=18.0)
    parser.add_argument("--output", type=Path, required=True, help="folder for the shards, about 60 MB per hour")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    shards = -(-int(arguments.hours * 3600) // int(SHARD_SECONDS))
    tasks = [(arguments.output, arguments.seed, index) for index in range(shards)]
    started, seconds = time.monotonic(), 0.0
    with multiprocessing.Pool(arguments.processes) as pool:
        for done, shard_seconds in enumerate(pool.imap_unordered(_write_numbered_shard, tasks), start=1):
            seconds += shard_seconds
            print(f"{done}/{shards} shards, {seconds / 3600:.2f} h, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    command.run(main)
