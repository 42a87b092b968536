"""Measures of spoken sentences: word error rate of the recogniser, mel distance, duration, and likeness of the voice.

All of them work on waveforms at 16 kHz from any source; the same measures of espeak-ng's own recordings show the error
of the measures themselves.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from examples.codec_tts import pitch, prompt
from examples.streaming_asr import decode, evaluate, features, text

SILENCE_S = 0.3
"""Silence before and behind a sentence, as the recogniser had in training."""

LOUD = 4.0
"""Frames of a voice count whose mean log-mel value is at most this far below the loudest frame's."""

FLOOR = 8.0
"""Mel values further than this below the sentence's loudest do not count as different."""

Samples = npt.NDArray[np.float32]


class Recogniser:
    """The recogniser of examples/streaming_asr on whole sentences, with greedy decoding."""

    def __init__(self) -> None:
        self.model = evaluate.load()
        self.tokens = text.read_tokens()

    def transcribe(self, samples: Samples) -> str:
        """Return the words of a sentence, float32 [samples] of 16 kHz."""
        silence = np.zeros(int(SILENCE_S * features.SAMPLE_RATE_HZ), np.float32)
        padded = features.pad_to_chunks(np.concatenate([silence, prompt.levelled(samples), silence]))
        with torch.inference_mode():
            logits = self.model.forward_utterance(torch.from_numpy(features.log_mel(padded))[None])
        return decode.GreedyDecoder(self.tokens).push(logits.numpy())


def mel(samples: Samples) -> npt.NDArray[np.float32]:
    """Return log-mel frames of a levelled sentence, float32 [frames, 80], clipped far below the loudest value."""
    frames = features.log_mel(prompt.levelled(samples))
    return np.asarray(np.maximum(frames, frames.max(initial=-100.0) - FLOOR), np.float32)


def mel_distance(ours: Samples, theirs: Samples) -> float:
    """Return the mean distance of log-mel values along the best alignment in time.

    Args:
        ours: float32 [samples].
        theirs: float32 [samples], both longer than 25 ms.

    Returns:
        Natural logarithms of power per value. Dynamic time warping with steps (1, 0), (0, 1) and (1, 1), Sakoe and
        Chiba 1978, normalised by the length of the path.
    """
    first, second = mel(ours), mel(theirs)
    apart = np.abs(first[:, None] - second[None]).mean(axis=-1)
    costs = np.full((len(first) + 1, len(second) + 1), np.inf)
    lengths = np.zeros(costs.shape)
    costs[0, 0] = 0.0
    for row in range(len(first)):
        for column in range(len(second)):
            before = min(
                (costs[row, column], row, column),
                (costs[row + 1, column], row + 1, column),
                (costs[row, column + 1], row, column + 1),
            )
            costs[row + 1, column + 1] = before[0] + apart[row, column]
            lengths[row + 1, column + 1] = lengths[before[1], before[2]] + 1
    return float(costs[-1, -1] / lengths[-1, -1])


@dataclasses.dataclass(frozen=True)
class Timbre:
    """Features of a voice that do not depend on the words.

    Attributes:
        spectrum: mean log-mel values of loud frames, less their mean, float64 [80].
        octave: mean binary logarithm of the pitch in Hz over voiced frames.
    """

    spectrum: npt.NDArray[np.float64]
    octave: float


def timbre(sentences: Sequence[Samples]) -> Timbre:
    """Return the timbre of one speaker's sentences, each float32 [samples], a multiple of 160 long."""
    frames = np.concatenate([features.log_mel(prompt.levelled(each)) for each in sentences]).astype(np.float64)
    levels = frames.mean(axis=1)
    spectrum = frames[levels >= levels.max(initial=-np.inf) - LOUD].mean(axis=0)
    tracked = [pitch.track(prompt.levelled(each)) for each in sentences]
    heights = np.concatenate([np.log2(pitch_hz)[voiced] for pitch_hz, voiced in tracked])
    return Timbre(spectrum - spectrum.mean(), float(heights.mean()) if len(heights) else 0.0)


def similarity(ours: Timbre, theirs: Timbre, everyone: Timbre) -> float:
    """Return the similarity of two timbres relative to the mean of all voices.

    Args:
        ours: one speaker.
        theirs: another, or the same one.
        everyone: mean of all voices.

    Returns:
        Cosine of the two departures from the mean, where one octave of pitch weighs as much as 1 in every mel bin:
        from -1 to 1.
    """
    apart = [
        np.append(each.spectrum - everyone.spectrum, (each.octave - everyone.octave) * np.sqrt(len(each.spectrum)))
        for each in (ours, theirs)
    ]
    return float(apart[0] @ apart[1] / max(np.linalg.norm(apart[0]) * np.linalg.norm(apart[1]), 1e-9))


def mean_timbre(timbres: Sequence[Timbre]) -> Timbre:
    """Return the mean of some timbres."""
    return Timbre(
        np.mean([each.spectrum for each in timbres], axis=0), float(np.mean([each.octave for each in timbres]))
    )
