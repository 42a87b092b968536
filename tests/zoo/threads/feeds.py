"""What the models of threads are fed, by the names that recipes use."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tests.zoo.threads.models import CHUNK, FEATURES, LABELS

Stream = list[dict[str, npt.NDArray[np.generic]]]


def _features(seed: int, lengths: Sequence[int]) -> Stream:
    rng = np.random.default_rng(seed)
    return [{"features": rng.standard_normal((1, length, FEATURES), dtype=np.float32)} for length in lengths]


def utterances() -> Iterator[Stream]:
    return (_features(length, [length]) for length in (5, 20, 31, 32))


def even_utterances() -> Iterator[Stream]:
    return (_features(length, [length]) for length in (6, 20, 32))


def other_utterances() -> Iterator[Stream]:
    return (_features(length, [length]) for length in (30, 29))


def chunks() -> Iterator[Stream]:
    return (_features(seed, [CHUNK] * 30) for seed in (0, 1))


def other_chunks() -> Iterator[Stream]:
    return (_features(seed, [CHUNK] * 30) for seed in (2, 3))


def short_chunks() -> Iterator[Stream]:
    return (_features(seed, np.random.default_rng(seed).integers(1, CHUNK + 1, 20).tolist()) for seed in (0, 1))


def frames() -> Iterator[Stream]:
    return (_features(seed, [1] * 12) for seed in (0, 1))


def single_frames() -> Iterator[Stream]:
    return ([{"features": feed["features"][:, 0]} for feed in stream] for stream in frames())


def tokens() -> Iterator[Stream]:
    return (
        [{"token": token[None]} for token in np.random.default_rng(seed).integers(0, LABELS, 20)] for seed in (0, 1)
    )


OTHERS = {"utterances": "other_utterances", "chunks": "other_chunks"}
"""Data to calibrate with, by those to verify with."""
