"""A recogniser of whole utterances, and data for it: a mask for attention, true lengths for the mean."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Convolution to half the frames, attention over frames under two masks, and one answer for the whole utterance."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Linear(4, 12)
        self.shorten = nn.Conv1d(4, 8, 3, stride=2)
        self.label = nn.Linear(8, 5)
        self.topic = nn.Linear(4, 3)

    def forward(self, features: Tensor, mask: Tensor, hidden: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self.attend(features).chunk(3, dim=-1)
        scores = query @ key.transpose(1, 2) + (1.0 - mask.unsqueeze(1).to(query.dtype)) * -1e30
        scores = scores.masked_fill(hidden.unsqueeze(1), float("-inf"))
        x = features + torch.softmax(scores, dim=-1) @ value
        labels = self.label(torch.relu(self.shorten(x.transpose(1, 2))).transpose(1, 2))
        mean = (x * mask.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)
        return labels, self.topic(mean)


def build() -> Net:
    """The same weights every time."""
    torch.manual_seed(3)
    return Net()


def utterances() -> Iterator[list[dict[str, np.ndarray]]]:
    """Utterances of 3 to 20 frames."""
    rng = np.random.default_rng(11)
    for length in (9, 3, 20, 5, 12, 8, 17, 4):
        yield [{"features": rng.standard_normal((1, length, 4)).astype(np.float32)}]
