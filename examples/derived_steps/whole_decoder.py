"""A decoder as it is trained: attention over the whole sequence under a causal mask, rotary positions, no caches.

Random weights: this shows structure, and says nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

LABELS, WIDTH, HEADS, GROUPS = 30, 64, 4, 2
FRAMES = 40


class Layer(nn.Module):
    """Attention of four heads over keys and values of two, and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, size * heads) for heads in (HEADS, GROUPS, GROUPS))
        self.output = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, turned: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Frames [batch, time, 64] with angles [time, 8] and what may not be seen [time, time]; the same shape."""
        y = self.before(x)
        queries, keys = (turn(self.heads(part(y)), turned) for part in (self.query, self.key))
        values = self.heads(self.value(y))
        keys, values = (each.repeat_interleave(HEADS // GROUPS, dim=1) for each in (keys, values))
        scores = (queries @ keys.transpose(2, 3) / queries.shape[-1] ** 0.5).masked_fill(future, float("-inf"))
        x = x + self.output((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))
        fed: torch.Tensor = self.narrow(nn.functional.gelu(self.wide(self.between(x))))
        return x + fed

    @staticmethod
    def heads(x: torch.Tensor) -> torch.Tensor:
        """Width into heads: [batch, time, heads * 16] -> [batch, heads, time, 16]."""
        return x.reshape(*x.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)


def turn(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary positions: pairs of [batch, heads, time, 16] turned by angles [time, 8]."""
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class WholeDecoder(nn.Module):
    """Two layers; every call is given the whole sequence."""

    rates: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LABELS, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LABELS)
        self.register_buffer("rates", 100.0 ** (-torch.arange(8) / 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens [batch, time]; for every place the scores of the next token, [batch, time, 30]."""
        places = torch.arange(tokens.shape[1])
        angles, future = places[:, None] * self.rates, places > places[:, None]
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, angles, future)
        scores: torch.Tensor = self.scores(self.norm(x))
        return scores


def build() -> nn.Module:
    """The recipe's factory."""
    torch.manual_seed(0)
    return WholeDecoder()


def verification() -> Iterator[list[dict[str, np.ndarray]]]:
    """Streams: a prompt of some tokens, then one token per call."""
    random = np.random.default_rng(0)
    while True:
        lengths = [int(random.integers(2, 9)), *([1] * (FRAMES - 9))]
        yield [{"tokens": random.integers(0, LABELS, (1, length))} for length in lengths]
