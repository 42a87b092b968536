"""One step of a decoder with attention: it takes keys and values of earlier tokens, and returns them with one more.

The weights are random: the example shows the structure only.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

LABELS, WIDTH, HEADS = 30, 64, 4


class TokenDecoder(nn.Module):
    """One layer with caches that grow at every call; nothing in it is prepared for a window of a fixed size."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LABELS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, LABELS)

    def forward(
        self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Take tokens [batch, 1] and caches [batch, 4, cached, 16]; return scores [batch, 1, 30] and longer caches."""
        x = self.embed(tokens)
        y = self.norm(x)
        keys = torch.cat([keys, self.heads(self.key(y))], dim=2)
        values = torch.cat([values, self.heads(self.value(y))], dim=2)
        heard = nn.functional.scaled_dot_product_attention(self.heads(self.query(y)), keys, values)
        return self.output(x + heard.transpose(1, 2).flatten(2)), keys, values

    @staticmethod
    def heads(x: torch.Tensor) -> torch.Tensor:
        """Split the width into heads: [batch, tokens, 64] to [batch, 4, tokens, 16]."""
        return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)


def build() -> nn.Module:
    """Return the model; the recipe names this factory."""
    torch.manual_seed(0)
    return TokenDecoder()


def verification() -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield streams of tokens that are longer than the recipe's window, so that its overflow is tested, too."""
    random = np.random.default_rng(0)
    while True:
        yield [{"tokens": random.integers(0, LABELS, (1, 1))} for _ in range(40)]
