"""Graphs of one model: an encoder of whole utterances, a step that labels one frame, and a scorer of all frames.

The step is recurrent: it reads the label of the frame before. The weights are random: the example shows the structure
only.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

BINS, WIDTH, LABELS = 40, 64, 30


class UtteranceEncoder(nn.Module):
    """Convolution, attention over the utterance and normalisation, without inputs for masks or lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv1d(BINS, WIDTH, 3, padding=1)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Encode features [batch, time, 40] as frames [batch, time, 64]."""
        x = torch.relu(self.front(features.transpose(1, 2))).transpose(1, 2)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        frames: torch.Tensor = self.norm(x + torch.softmax(scores, dim=-1) @ self.value(x))
        return frames


class FrameLabeller(nn.Module):
    """Returns the scores of one frame's label, given the label before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LABELS, WIDTH)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, LABELS)

    def forward(
        self, frame: torch.Tensor, label: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take frame [batch, 64], label [batch] and state [batch, 64]; return scores [batch, 30] and the next state."""
        hidden = self.cell(torch.cat([frame, self.embed(label)], dim=1), hidden)
        return self.output(hidden), hidden


class FrameScorer(nn.Module):
    """Returns a confidence for every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(WIDTH, 16), nn.Linear(16, 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Convert frames [batch, time, 64] to confidences from 0 to 1 [batch, time]."""
        confidence: torch.Tensor = torch.sigmoid(self.output(torch.tanh(self.hidden(frames)))).squeeze(-1)
        return confidence


def build_encoder() -> nn.Module:
    """Return the encoder; the recipe's graph `encoder` names this factory."""
    torch.manual_seed(0)
    return UtteranceEncoder()


def build_step() -> nn.Module:
    """Return the step; the recipe's graph `step` names this factory."""
    torch.manual_seed(1)
    return FrameLabeller()


def build_scorer() -> nn.Module:
    """Return the scorer; the recipe's graph `scorer` names this factory."""
    torch.manual_seed(2)
    return FrameScorer()


def utterances() -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield streams of one feed each for the encoder, of different lengths."""
    random = np.random.default_rng(0)
    while True:
        time = int(random.integers(1, 65))
        yield [{"features": random.standard_normal((1, time, BINS), dtype=np.float32)}]


def steps() -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield streams of frames with their labels for the step."""
    random = np.random.default_rng(0)
    while True:
        frames = random.standard_normal((24, 1, WIDTH), dtype=np.float32)
        yield [{"frame": frame, "label": random.integers(0, LABELS, 1)} for frame in frames]


def encoded() -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield streams of one feed each for the scorer, of different lengths."""
    random = np.random.default_rng(1)
    while True:
        time = int(random.integers(1, 65))
        yield [{"frames": random.standard_normal((1, time, WIDTH), dtype=np.float32)}]
