"""The prompt of a voice: half a second of speech, shipped or recorded."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from examples.codec_tts import generation
from examples.streaming_asr import transcribe

LOUDEST = 0.5
"""Sentences are heard with their loudest sample at this magnitude."""

SAMPLES = generation.PROMPT_FRAMES * generation.CODE_SAMPLES
SAMPLE_RATE_HZ = 16000
FOLDER = Path(__file__).with_name("prompts")
"""Half a second of each voice, `VOICE.flac`, written by `recordings.py`."""

Samples = npt.NDArray[np.float32]


def levelled(samples: Samples) -> Samples:
    """Scale samples so that the loudest is at `LOUDEST`; silence is unchanged."""
    return np.asarray(samples * (LOUDEST / max(float(np.abs(samples).max(initial=0.0)), 1e-5)), np.float32)


def of_voice(voice: str) -> Path:
    """Return the path of the shipped recording of a voice."""
    return FOLDER / f"{voice}.flac"


def read(path: Path) -> Samples:
    """Read a prompt.

    Args:
        path: WAV or FLAC file of half a second or more; the rest is ignored.

    Returns:
        float32 [8000], 16 kHz, levelled.

    Raises:
        ValueError: if the file is missing, is not audio, or is too short.
    """
    samples = transcribe.read_recording(path)
    if len(samples) < SAMPLES:
        raise ValueError(
            f"{path.name}: expected at least {SAMPLES / SAMPLE_RATE_HZ} s of speech, got "
            f"{len(samples) / SAMPLE_RATE_HZ:.2f} s; record more"
        )
    return levelled(samples[:SAMPLES])
