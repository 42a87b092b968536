"""Recurrent recognisers."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class Recurrent(nn.Module):
    """Layers of one kind and a classifier."""

    def __init__(self, kind: str, *, layers: int, both: bool) -> None:
        super().__init__()
        self.layers = getattr(nn, kind)(16, 24, layers, batch_first=True, bidirectional=both)
        self.output = nn.Linear(48 if both else 24, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.log_softmax(self.output(self.layers(x)[0]), -1)


def ctc(kind: str, *, layers: int, both: bool) -> Callable[[], Recurrent]:
    """A factory."""
    return lambda: Recurrent(kind, layers=layers, both=both)


class Flipped(nn.Module):
    """A backward layer spelled as a forward one between two reversals of time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.output = nn.GRU(16, 12, batch_first=True), nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.output(self.layer(x.flip(1))[0].flip(1))
        return result


class DeepSpeech2(nn.Module):
    """Two strided convolutions over time and frequency, batch norm, clipped activations, a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 4, 5, 2, 2), nn.Conv2d(4, 4, 3, (2, 1), 1)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])
        self.layer = nn.LSTM(16, 16, batch_first=True, bidirectional=True)
        self.output = nn.Linear(32, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2).unsqueeze(1)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = functional.hardtanh(norm(convolution(x)), 0.0, 20.0)
        rows, channels, bands, frames = x.shape
        x = x.reshape(rows, channels * bands, frames).transpose(1, 2)
        result: torch.Tensor = self.output(self.layer(x)[0])
        return result


class Cif(nn.Module):
    """Weights of the frames summed up over time, and how many tokens they make."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.output = nn.Conv1d(16, 16, 3, padding=1), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.convolution(x.transpose(1, 2))).transpose(1, 2)
        weights = torch.sigmoid(self.output(hidden)).squeeze(-1)
        return torch.cumsum(weights, 1), weights.sum(1)


class Crnn(nn.Module):
    """Convolutions with pooling, a recurrent layer, and the loudest frame decides."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)])
        self.layer, self.output = nn.LSTM(32, 12, batch_first=True, bidirectional=True), nn.Linear(24, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(torch.relu(self.convolutions[0](x.unsqueeze(1))), 2)
        x = functional.avg_pool2d(torch.relu(self.convolutions[1](x)), (1, 2))
        rows, channels, frames, bands = x.shape
        x = self.layer(x.transpose(1, 2).reshape(rows, frames, channels * bands))[0]
        return torch.sigmoid(self.output(x).max(1).values)


class TransducerJoint(nn.Module):
    """Every frame with every token: the grid of a transducer, with the prediction network."""

    def __init__(self) -> None:
        super().__init__()
        self.frames, self.embed = nn.Linear(16, 24), nn.Embedding(20, 16)
        self.layer, self.output = nn.LSTM(16, 24, batch_first=True), nn.Linear(24, 20)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        predicted = self.layer(self.embed(ids))[0]
        joined = torch.tanh(self.frames(x).unsqueeze(2) + predicted.unsqueeze(1))
        return functional.log_softmax(self.output(joined), -1)


class TacotronEncoder(nn.Module):
    """Convolutions with batch norm over embedded characters, then a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.convolutions = nn.ModuleList(nn.Conv1d(16, 16, 5, padding=2) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(2))
        self.layer = nn.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids).transpose(1, 2)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = torch.relu(norm(convolution(x)))
        result: torch.Tensor = self.layer(x.transpose(1, 2))[0]
        return result
