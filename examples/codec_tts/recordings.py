"""Speaks the sentences with espeak-ng in four voices, and writes the recordings to one file per side.

    python -m examples.codec_tts.recordings --output FOLDER

Needs the `espeak-ng` program and `soxr`. Speed and pitch of a voice are fixed: what differs between two recordings is
what is said and who says it.
"""

import argparse
import dataclasses
import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from examples import command
from examples.codec_tts import generation, pitch, prompt, sentences
from examples.streaming_asr import features, synthesize, text

VOICES = ("m1", "m4", "f2", "f5")
"""Variants of American English; all of them are training voices of the recogniser that judges."""

ACCENT = "en-us"
WORDS_PER_MINUTE = 160
PITCH = 50
QUIET = 0.01
MARGIN_S = 0.04
"""What is kept before the first sample above `QUIET` and behind the last one."""

COUNTS: dict[text.Side, int] = {"training": 1000, "development": 16, "test": 32}
"""Recordings of every voice."""

PROMPT_SENTENCE = "please report heading and depth"
SEEDS: dict[text.Side, int] = {"training": 1, "development": 2, "test": 3}


@dataclasses.dataclass(frozen=True)
class Recording:
    """One spoken sentence.

    Attributes:
        samples: int16 [samples], 16 kHz, a multiple of 320.
        sentence: what is said.
        voice: index into `VOICES`.
        pitch_hz: float32 [samples / 160], from `pitch.track`.
    """

    samples: npt.NDArray[np.int16]
    sentence: str
    voice: int
    pitch_hz: npt.NDArray[np.float32]

    @property
    def waveform(self) -> npt.NDArray[np.float32]:
        """Return the samples as float32 in [-1, 1]."""
        return np.asarray(self.samples / 32768, np.float32)


def trim(samples: synthesize.Samples) -> synthesize.Samples:
    """Remove silence at both ends and pad to whole codec frames.

    Args:
        samples: float32 [samples], 16 kHz.

    Returns:
        float32 [a multiple of 320]: from 40 ms before the first loud sample to 40 ms after the last.
    """
    loud = np.flatnonzero(np.abs(samples) > QUIET)
    margin = int(MARGIN_S * features.SAMPLE_RATE_HZ)
    first, last = (loud[0], loud[-1]) if len(loud) else (0, 0)
    kept = samples[max(0, first - margin) : last + margin]
    return np.pad(kept, (0, -len(kept) % generation.CODE_SAMPLES))


def record(sentence: str, voice: int) -> Recording:
    """Speak one sentence and return the recording.

    Args:
        sentence: what to say.
        voice: index into `VOICES`.

    Returns:
        The recording, loudest sample about 0.5.

    Raises:
        FileNotFoundError: espeak-ng is missing.
        RuntimeError: it says nothing.
    """
    spoken = synthesize.speak(sentence, synthesize.SpokenVoice(ACCENT, VOICES[voice]), WORDS_PER_MINUTE, PITCH)
    samples = np.asarray(np.round(trim(spoken) * 32767), np.int16)
    return Recording(samples, sentence, voice, pitch.track(np.asarray(samples / 32768, np.float32))[0])


def write(path: Path, recordings: list[Recording]) -> None:
    """Write recordings to one `.npz` file; on an error no file is left."""
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial,
        samples=np.concatenate([each.samples for each in recordings]),
        pitch_hz=np.concatenate([each.pitch_hz for each in recordings]),
        ends=np.cumsum([len(each.samples) for each in recordings]),
        sentences=np.array([each.sentence for each in recordings]),
        voices=np.array([each.voice for each in recordings]),
    )
    partial.rename(path)


def read(path: Path) -> list[Recording]:
    """Read a file that `write` wrote.

    Args:
        path: the file.

    Returns:
        The recordings in their order.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"read: expected recordings in {str(path)!r}, got no file; run examples.codec_tts.recordings first"
        )
    with np.load(path) as file:
        ends = file["ends"][:-1]
        samples = np.split(file["samples"], ends)
        pitches = np.split(file["pitch_hz"], ends // pitch.HOP)
        rows = zip(samples, file["sentences"].tolist(), file["voices"].tolist(), pitches, strict=True)
        return [Recording(*row) for row in rows]


def write_prompts(folder: Path) -> None:
    """Write half a second of every voice to `VOICE.flac`: the middle of `PROMPT_SENTENCE`."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, voice in enumerate(VOICES):
        spoken = record(PROMPT_SENTENCE, index).samples
        start = len(spoken) // 2 // generation.CODE_SAMPLES * generation.CODE_SAMPLES
        middle = spoken[start : start + prompt.SAMPLES]
        soundfile.write(folder / f"{voice}.flac", middle, features.SAMPLE_RATE_HZ, subtype="PCM_16")


def main() -> None:
    """Write `training.npz`, `development.npz`, `test.npz` and the prompts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder, about 200 MB")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_prompts(arguments.output / "prompts")
    for side, count in COUNTS.items():
        drawn = itertools.islice(sentences.draw_sentences(SEEDS[side], side), count * len(VOICES))
        spoken = [record(sentence, index % len(VOICES)) for index, sentence in enumerate(drawn)]
        write(arguments.output / f"{side}.npz", spoken)
        seconds = sum(len(each.samples) for each in spoken) / features.SAMPLE_RATE_HZ
        print(f"{side}: {len(spoken)} recordings, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    command.run(main)
