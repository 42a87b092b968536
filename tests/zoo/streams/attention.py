"""What steps with attention are made of."""

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, HEADS = 8, 2


class Attention(nn.Module):
    """The projections."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))


def heads(x: Tensor) -> Tensor:
    """[batch, frames, width] as [batch, heads, frames, width of a head]."""
    return x.view(x.size(0), x.size(1), HEADS, WIDTH // HEADS).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """The reverse."""
    return x.transpose(1, 2).reshape(x.size(0), -1, WIDTH)


def rope(x: Tensor, position: Any) -> Tensor:
    """Pairs of channels turned by an angle that grows with the position."""
    angles = position[..., None] * torch.exp(torch.arange(0, 2) * -2.0)
    first, second = x.chunk(2, -1)
    turned = (first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos())
    return torch.cat(turned, -1)
