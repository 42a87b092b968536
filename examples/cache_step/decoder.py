"""One step of a decoder with attention: keys and values of earlier tokens come in, and go out one token longer.

Random weights: this shows structure, and says nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

LABELS, WIDTH, HEADS = 30, 64, 4


class TokenDecoder(nn.Module):
    """One layer; the caches grow with every call, nothing is arranged for a window of fixed size."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LABELS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, LABELS)

    def forward(
        self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens [batch, 1], caches [batch, 4, cached, 16]; scores [batch, 1, 30] and the caches, one token longer."""
        x = self.embed(tokens)
        y = self.norm(x)
        keys = torch.cat([keys, self.heads(self.key(y))], dim=2)
        values = torch.cat([values, self.heads(self.value(y))], dim=2)
        heard = nn.functional.scaled_dot_product_attention(self.heads(self.query(y)), keys, values)
        return self.output(x + heard.transpose(1, 2).flatten(2)), keys, values

    @staticmethod
    def heads(x: torch.Tensor) -> torch.Tensor:
        """Width into heads: [batch, tokens, 64] -> [batch, 4, tokens, 16]."""
        return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)


def build() -> nn.Module:
    """The recipe's factory."""
    torch.manual_seed(0)
    return TokenDecoder()


def verification() -> Iterator[list[dict[str, np.ndarray]]]:
    """Streams of tokens, longer than the window of the recipe, so that its overflow is tested as well."""
    random = np.random.default_rng(0)
    while True:
        yield [{"tokens": random.integers(0, LABELS, (1, 1))} for _ in range(40)]
