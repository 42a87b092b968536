"""A decoder in its training form: attention over the whole sequence with a causal mask, rotary positions, no caches.

The weights are random: the example shows the structure only.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

LABELS, WIDTH, HEADS, GROUPS = 30, 64, 4, 2
FRAMES = 40


class Layer(nn.Module):
    """Attention of four heads of queries over two heads of keys and values, and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, size * heads) for heads in (HEADS, GROUPS, GROUPS))
        self.output = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, turned: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Take frames [batch, time, 64], angles [time, 8] and a mask [time, time]; return the same shape as frames."""
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
        """Split the width into heads: [batch, time, heads * 16] to [batch, heads, time, 16]."""
        return x.reshape(*x.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)


def turn(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Apply rotary positions: rotate pairs of [batch, heads, time, 16] by angles [time, 8]."""
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class WholeDecoder(nn.Module):
    """Two layers; every call takes the whole sequence."""

    rates: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LABELS, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LABELS)
        self.register_buffer("rates", 100.0 ** (-torch.arange(8) / 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Take tokens [batch, time]; return the scores of the token after every position, [batch, time, 30]."""
        places = torch.arange(tokens.shape[1])
        angles, future = places[:, None] * self.rates, places > places[:, None]
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, angles, future)
        scores: torch.Tensor = self.scores(self.norm(x))
        return scores


def build() -> nn.Module:
    """Return the model; the recipe names this factory."""
    torch.manual_seed(0)
    return WholeDecoder()


def verification() -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield streams: a prompt of some tokens, then one token per call."""
    random = np.random.default_rng(0)
    while True:
        lengths = [int(random.integers(2, 9)), *([1] * (FRAMES - 9))]
        yield [{"tokens": random.integers(0, LABELS, (1, length))} for length in lengths]
