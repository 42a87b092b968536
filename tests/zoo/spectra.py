"""Spectral front ends inside the graph."""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class Fourier(nn.Module):
    """Log power of a short-time Fourier transform.

    Args:
        centered: whether the signal is mirrored at both ends first.
    """

    def __init__(self, *, centered: bool) -> None:
        super().__init__()
        self.centered = centered
        self.window = nn.Buffer(torch.hann_window(32))
        self.bands = nn.Buffer(torch.rand(17, 10))
        self.output = nn.Linear(10, 12)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(wave, 32, 16, window=self.window, center=self.centered, return_complex=True)
        power = torch.view_as_real(spectrum).pow(2).sum(-1).transpose(1, 2)
        result: torch.Tensor = self.output(torch.log(power @ self.bands + 1e-6))
        return result


def fourier(*, centered: bool) -> Callable[[], Fourier]:
    """A factory."""
    return lambda: Fourier(centered=centered)


class LogMel(nn.Module):
    """Log mel features by convolution with a Fourier basis, normalised over each utterance."""

    def __init__(self) -> None:
        super().__init__()
        angles = 2 * math.pi * torch.arange(17.0)[:, None] * torch.arange(32.0) / 32
        basis = torch.cat([torch.cos(angles), torch.sin(angles)]) * torch.hann_window(32)
        self.basis = nn.Buffer(basis.unsqueeze(1))
        self.bands = nn.Buffer(torch.rand(10, 17))
        self.output = nn.Conv1d(10, 12, 3, padding=1)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        parts = functional.conv1d(wave.unsqueeze(1), self.basis, stride=16)
        power = parts[:, :17] ** 2 + parts[:, 17:] ** 2
        x = torch.log(torch.matmul(self.bands, power) + 1e-6)
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        result: torch.Tensor = self.output(x)
        return result.transpose(1, 2)
