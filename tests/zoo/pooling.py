"""One vector per utterance or sentence."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class Sentence(nn.Module):
    """Embedded tokens, pooled over time.

    Args:
        kind: mean, max, last or attention.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.embed, self.norm, self.output = kind, nn.Embedding(40, 24), nn.LayerNorm(24), nn.Linear(24, 5)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(ids))
        valid = mask.unsqueeze(-1).float()
        if self.kind == "mean":
            pooled = (x * valid).sum(1) / valid.sum(1).clamp(min=1e-9)
        elif self.kind == "max":
            pooled = x.masked_fill(valid == 0, -1e9).max(1).values
        elif self.kind == "last":
            pooled = x[torch.arange(ids.shape[0]), mask.sum(1) - 1]
        else:
            weights = torch.softmax(x.sum(-1) + (1 - valid[..., 0]) * -1e4, 1)
            pooled = (weights.unsqueeze(-1) * x).sum(1)
        result: torch.Tensor = self.output(functional.normalize(pooled, dim=-1))
        return result


def sentence(kind: str) -> Callable[[], Sentence]:
    """A factory."""
    return lambda: Sentence(kind)


class Hazard(nn.Module):
    """A layer whose rows mix, whose result is random, or whose padding cannot be hidden.

    Args:
        kind: what is wrong.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(16, 8)
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        match self.kind:
            case "batch_mean":
                return y - y.mean(0, keepdim=True)
            case "batch_attention":
                z = y.transpose(0, 1)
                return (torch.softmax(z @ z.transpose(1, 2), -1) @ z).transpose(0, 1)
            case "batch_similarity":
                pooled = y.mean(1)
                return pooled @ pooled.T
            case "batch_statistics":
                normed: torch.Tensor = self.norm(y.transpose(1, 2))
                return normed.transpose(1, 2)
            case "batch_maximum":
                return y / y.abs().max()
            case "random_noise":
                return y + torch.randn_like(y)
            case "sorted_time":
                return torch.sort(y, dim=1).values
        raise ValueError(self.kind)


def hazard(kind: str) -> Callable[[], Hazard]:
    """A factory."""
    return lambda: Hazard(kind)


class TimesLength(nn.Module):
    """Frames multiplied by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) * x.shape[1]
        return result
