"""Cuts the audio of one speaker into chunks and utterances, and keeps its text: transient while it grows, then steady.

An utterance ends behind a pause, or where it would not fit the model of whole utterances. Nothing here runs a model.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from examples.captions.data import CALL_FRAMES, HOP_FRAMES
from examples.streaming_asr import decode, features, text

PAUSE_FRAMES = 10
"""Blank output frames at the end of an utterance, of 40 ms each."""

SHORT_PAUSE_FRAMES = 3
"""The same of an utterance that is long."""

LONG_CHUNKS = 20
"""Chunks from which on an utterance is long: 6.4 s."""

MOST_CHUNKS = 23
"""Chunks of an utterance: with the 3 frames behind them, 739 feature frames, of at most 768 in a bucket."""


@dataclasses.dataclass(frozen=True)
class Heard:
    """What a chunk has brought.

    Attributes:
        transient: text of the utterance so far.
        utterance: features float32 [1, frames, 80] of the utterance that has ended with the chunk; None if it goes on.
    """

    transient: str
    utterance: features.Frames | None = None


class Caption:
    """The audio of one speaker.

    Args:
        tokens: the label table of the recogniser.
    """

    def __init__(self, tokens: text.TokenTable) -> None:
        self._tokens = tokens
        self._features = features.FeatureStream(CALL_FRAMES)
        self._begin()

    def _begin(self) -> None:
        self._decoder = decode.GreedyDecoder(self._tokens)
        self._chunks: list[features.Frames] = []
        self._pause = 0

    def add(self, samples: features.Samples) -> list[features.Frames]:
        """Add samples and return the chunks that they complete.

        Args:
            samples: float32 [samples], 16 kHz, amplitudes in [-1, 1].

        Returns:
            Each float32 [35, 80], in order.
        """
        return list(self._features.push(samples))

    def finish(self) -> list[features.Frames]:
        """Return the last chunk, which is filled with silence; nothing if every sample is in a chunk."""
        return list(self._features.finish())

    def hear(self, chunk: features.Frames, logits: npt.NDArray[np.float32]) -> Heard:
        """Take the logits of a chunk.

        Args:
            chunk: float32 [35, 80].
            logits: float32 [8, labels].
        """
        transient = self._decoder.push(logits)
        self._chunks.append(chunk)
        for label in logits.argmax(axis=1).tolist():
            self._pause = self._pause + 1 if label == text.BLANK else 0
        if not transient:
            self._chunks = self._chunks[-1:]  # silence in front of an utterance, but for what a word may begin in
            return Heard("")
        count = len(self._chunks)
        wanted = SHORT_PAUSE_FRAMES if count >= LONG_CHUNKS else PAUSE_FRAMES
        return Heard(transient, self.end() if self._pause >= wanted or count >= MOST_CHUNKS else None)

    def end(self) -> features.Frames | None:
        """End the utterance; return its features float32 [1, frames, 80], or None if it has no text."""
        chunks, has_text = self._chunks, bool(self._decoder.text)
        self._begin()
        if not has_text:
            return None
        return np.concatenate([*(chunk[:HOP_FRAMES] for chunk in chunks[:-1]), chunks[-1]])[np.newaxis]
