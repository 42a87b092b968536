"""Recordings, a decoder and a metric for the recogniser of one screen."""

import dataclasses

import numpy as np
import numpy.typing as npt

Feed = dict[str, npt.NDArray[np.float32]]


def one_recording(seed: int, chunks: int = 8) -> list[Feed]:
    numbers = np.random.default_rng(seed).standard_normal((chunks, 1, 4, 8)).astype(np.float32)
    return [{"features": chunk} for chunk in numbers]


@dataclasses.dataclass(frozen=True)
class Recording:
    name: str
    chunks: list[Feed]
    reference: str


def recordings() -> list[Recording]:
    """Two recordings whose reference is arbitrary."""
    return [Recording(f"r{seed}", one_recording(100 + seed), "ABBA" * 8) for seed in range(2)]


def decode(outputs: list[Feed]) -> str:
    """The best label of every frame."""
    best = np.concatenate([step["logits"][0] for step in outputs]).argmax(-1)
    return "".join(chr(ord("A") + label) for label in best)


def error_rate(references: list[str], said: list[str]) -> float:
    """Share of wrong labels."""
    pairs = [pair for both in zip(references, said, strict=True) for pair in zip(*both, strict=True)]
    return sum(a != b for a, b in pairs) / len(pairs)
