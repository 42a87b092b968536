"""Recordings of the trained recogniser's sets in the chunks of captions, half as long as those it was trained with."""

from collections.abc import Iterator

import numpy as np

from examples.streaming_asr import data, features

CALL_FRAMES = 35
"""Feature frames of a chunk: 32 new ones, 0.32 s, and 3 of the chunk before."""

HOP_FRAMES = CALL_FRAMES - features.SHARED_FRAMES

ALGORITHMIC_DELAY_MS = 1e3 * features.samples_of(CALL_FRAMES) / features.SAMPLE_RATE_HZ
"""How long the first sample of a chunk waits for the last one, in milliseconds."""


def halved(chunks: list[data.Feed]) -> list[data.Feed]:
    """Return the same recording in chunks of half the length.

    Args:
        chunks: feeds `{"features": float32 [1, 67, 80]}`.

    Returns:
        Feeds `{"features": float32 [1, 35, 80]}`, twice as many.
    """
    starts = (0, HOP_FRAMES)
    return [
        {"features": np.ascontiguousarray(chunk["features"][:, start : start + CALL_FRAMES])}
        for chunk in chunks
        for start in starts
    ]


def verification() -> Iterator[list[data.Feed]]:
    """Yield the streams of the recogniser's verification, in these chunks."""
    for stream in data.verification():
        yield halved(stream)


def recordings() -> Iterator[data.Recording]:
    """Yield every recording of the test set with its reference, in these chunks."""
    for recording in data.recordings():
        yield data.Recording(recording.name, halved(recording.chunks), recording.reference)
