"""A recurrent model, as its authors have it: two LSTM layers, whose hidden and cell states go in and come out.

Random weights: this shows structure, and labels nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

FRAMES, BINS, WIDTH, LAYERS, LABELS = 8, 40, 64, 2, 30


class FrameTagger(nn.Module):
    """One chunk of frames to scores of labels; written for one row, as PyTorch's LSTM has the layers in front."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(BINS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=LAYERS, batch_first=True)
        self.output = nn.Linear(WIDTH, LABELS)

    def forward(
        self, features: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features [1, 8, 40], states [2, 1, 64]; scores [1, 8, 30] and the next states."""
        x, (hidden, cell) = self.lstm(self.embed(features), (hidden, cell))
        return self.output(x), hidden, cell


def build() -> nn.Module:
    """The recipe's factory."""
    torch.manual_seed(0)
    return FrameTagger()


def verification() -> Iterator[list[dict[str, np.ndarray]]]:
    """Streams of chunks to verify with; take real recordings for a real model."""
    random = np.random.default_rng(0)
    while True:
        yield [{"features": random.standard_normal((1, FRAMES, BINS), dtype=np.float32)} for _ in range(24)]
