"""Graphs of one model: an encoder that reads a whole utterance, a step that labels one of its frames, a scorer of all.

The step is recurrent: it reads the label that it gave to the frame before. Random weights: this shows structure, and
labels nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

BINS, WIDTH, LABELS = 40, 64, 30


class UtteranceEncoder(nn.Module):
    """Convolution, attention over the utterance, normalisation; it takes neither masks nor lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv1d(BINS, WIDTH, 3, padding=1)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features [batch, time, 40] to frames [batch, time, 64]."""
        x = torch.relu(self.front(features.transpose(1, 2))).transpose(1, 2)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        frames: torch.Tensor = self.norm(x + torch.softmax(scores, dim=-1) @ self.value(x))
        return frames


class FrameLabeller(nn.Module):
    """One frame and the label before it, to the scores of its label."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LABELS, WIDTH)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, LABELS)

    def forward(
        self, frame: torch.Tensor, label: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Frame [batch, 64], label [batch], state [batch, 64]; scores [batch, 30] and the next state."""
        hidden = self.cell(torch.cat([frame, self.embed(label)], dim=1), hidden)
        return self.output(hidden), hidden


class FrameScorer(nn.Module):
    """How sure one may be of every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(WIDTH, 16), nn.Linear(16, 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames [batch, time, 64] to confidences from 0 to 1 [batch, time]."""
        confidence: torch.Tensor = torch.sigmoid(self.output(torch.tanh(self.hidden(frames)))).squeeze(-1)
        return confidence


def build_encoder() -> nn.Module:
    """Factory of the recipe's graph `encoder`."""
    torch.manual_seed(0)
    return UtteranceEncoder()


def build_step() -> nn.Module:
    """Factory of the recipe's graph `step`."""
    torch.manual_seed(1)
    return FrameLabeller()


def build_scorer() -> nn.Module:
    """Factory of the recipe's graph `scorer`."""
    torch.manual_seed(2)
    return FrameScorer()


def utterances() -> Iterator[list[dict[str, np.ndarray]]]:
    """For the encoder: streams of one feed each, of different lengths."""
    random = np.random.default_rng(0)
    while True:
        time = int(random.integers(1, 65))
        yield [{"features": random.standard_normal((1, time, BINS), dtype=np.float32)}]


def steps() -> Iterator[list[dict[str, np.ndarray]]]:
    """For the step: streams of frames with their labels."""
    random = np.random.default_rng(0)
    while True:
        frames = random.standard_normal((24, 1, WIDTH), dtype=np.float32)
        yield [{"frame": frame, "label": random.integers(0, LABELS, 1)} for frame in frames]


def encoded() -> Iterator[list[dict[str, np.ndarray]]]:
    """For the scorer: streams of one feed each, of different lengths."""
    random = np.random.default_rng(1)
    while True:
        time = int(random.integers(1, 65))
        yield [{"frames": random.standard_normal((1, time, WIDTH), dtype=np.float32)}]
