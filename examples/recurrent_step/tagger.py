"""A recurrent model in its usual form: two LSTM layers, which take hidden and cell states and return the next ones.

The weights are random: the example shows the structure only.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

FRAMES, BINS, WIDTH, LAYERS, LABELS = 8, 40, 64, 2, 30


class FrameTagger(nn.Module):
    """Converts one chunk of frames to scores of labels, for one row; states are [layers, 1, width] as in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(BINS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=LAYERS, batch_first=True)
        self.output = nn.Linear(WIDTH, LABELS)

    def forward(
        self, features: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Take features [1, 8, 40] and states [2, 1, 64]; return scores [1, 8, 30] and the next states."""
        x, (hidden, cell) = self.lstm(self.embed(features), (hidden, cell))
        return self.output(x), hidden, cell


def build() -> nn.Module:
    """Return the model; the recipe names this factory."""
    torch.manual_seed(0)
    return FrameTagger()


def verification() -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield streams of chunks to verify with; use real recordings for a real model."""
    random = np.random.default_rng(0)
    while True:
        yield [{"features": random.standard_normal((1, FRAMES, BINS), dtype=np.float32)} for _ in range(24)]
