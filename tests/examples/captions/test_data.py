"""Recordings in the chunks of captions are those that a stream makes of the samples."""

import numpy as np

from examples.captions.data import CALL_FRAMES, halved
from examples.streaming_asr import features


def test_chunks_of_half_the_length_are_those_of_the_samples() -> None:
    samples = (0.1 * np.random.default_rng(0).standard_normal(40_000)).astype(np.float32)
    padded = features.pad_to_chunks(samples)
    stream = features.FeatureStream(CALL_FRAMES)
    expected = [*stream.push(padded), *stream.finish()]
    found = halved([{"features": chunk[np.newaxis]} for chunk in features.feature_chunks(samples)])
    np.testing.assert_array_equal(np.stack([feed["features"][0] for feed in found]), np.stack(expected))
