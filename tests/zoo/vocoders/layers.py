"""Layers of vocoders and decoders of codecs, causal or not, as their papers describe them."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def convolution(channels: int, out: int, taps: int, *, causal: bool, apart: int = 1, groups: int = 1) -> nn.Module:
    """A convolution over time that keeps its number of entries: zeros in front, or on both sides."""
    reach = apart * (taps - 1)
    pads = (reach, 0) if causal else (reach // 2, reach - reach // 2)
    return nn.Sequential(nn.ConstantPad1d(pads, 0.0), nn.Conv1d(channels, out, taps, dilation=apart, groups=groups))


class Upsampling(nn.Module):
    """A transposed convolution of twice as many taps as its stride; its overlap is cut off behind, or on both sides."""

    def __init__(self, channels: int, out: int, stride: int, *, causal: bool) -> None:
        super().__init__()
        self.spread = nn.ConvTranspose1d(channels, out, 2 * stride, stride)
        self.front = 0 if causal else stride // 2
        self.behind = stride - self.front

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, n] to [batch, out, n * stride]."""
        found: Tensor = self.spread(x)[..., self.front : -self.behind]
        return found


class Snake(nn.Module):
    """x + sin(a x)^2 / a, a learnt for each channel (Ziyin et al. 2020, arXiv 2006.08195)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, n], same shape."""
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


class Residual(nn.Module):
    """Two convolutions beside what goes in, the first one dilated, behind an activation each."""

    def __init__(self, channels: int, taps: int, apart: int, act: type[nn.Module] | None, *, causal: bool) -> None:
        super().__init__()
        self.first = convolution(channels, channels, taps, causal=causal, apart=apart)
        self.second = convolution(channels, channels, taps, causal=causal)
        acts = [nn.LeakyReLU(0.1) if act is None else act(channels) if act is Snake else act() for _ in range(2)]
        self.acts = nn.ModuleList(acts)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, n], same shape."""
        y: Tensor = self.second(self.acts[1](self.first(self.acts[0](x))))
        return x + y


class ConvNext(nn.Module):
    """A depthwise convolution, a norm of every frame by itself, and two linear layers (Siuzdak 2023)."""

    def __init__(self, channels: int, *, causal: bool) -> None:
        super().__init__()
        self.mix = convolution(channels, channels, 7, causal=causal, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 3 * channels), nn.Linear(3 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, n], same shape."""
        y: Tensor = self.narrow(functional.gelu(self.wide(self.norm(self.mix(x).transpose(1, 2)))))
        return x + y.transpose(1, 2)


class SpectrumToSound(nn.Module):
    """The end of Vocos: magnitude and phase of every frame, transformed back, windowed, overlapped and added.

    The transform and its window are one transposed convolution with a fixed basis. Where it is causal, a sample is
    complete with the frame that ends it; else frames are centred, and half of a window is cut off in front.
    """

    basis: Tensor

    def __init__(self, channels: int, hop: int, *, causal: bool) -> None:
        super().__init__()
        self.window, self.hop = 2 * hop, hop
        bins = hop + 1
        self.leave = nn.Conv1d(channels, 2 * bins, 1)
        turns = torch.arange(bins)[:, None] * torch.arange(self.window) / self.window
        weights = torch.full((bins, 1), 2.0 / self.window)
        weights[0] = weights[-1] = 1.0 / self.window
        waves = torch.cat([torch.cos(2 * math.pi * turns) * weights, -torch.sin(2 * math.pi * turns) * weights])
        self.register_buffer("basis", (waves * torch.hann_window(self.window).sqrt())[:, None])
        self.front = 0 if causal else hop // 2

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, time] to [batch, time * hop]."""
        size, phase = self.leave(x).chunk(2, dim=1)
        size = torch.exp(size).clamp(max=1e2)
        spectrum = torch.cat([size * torch.cos(phase), size * torch.sin(phase)], dim=1)
        sound = functional.conv_transpose1d(spectrum, self.basis, stride=self.hop)
        return sound[:, 0, self.front : self.front - self.hop]


class NearAttention(nn.Module):
    """Attention of every frame over itself and the newest before it, with rotary positions."""

    def __init__(self, width: int, near: int) -> None:
        super().__init__()
        self.near = near
        self.parts, self.leave, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, n, width], same shape."""
        places = torch.arange(x.shape[1])
        query, key, value = self.parts(self.norm(x)).chunk(3, dim=-1)
        rates = 1000.0 ** (-torch.arange(0, x.shape[2], 2) / x.shape[2])
        angles = places[:, None] * rates
        query, key = (self._turned(each, angles) for each in (query, key))
        apart = places[:, None] - places
        scores = query @ key.transpose(1, 2) / math.sqrt(x.shape[2])
        scores = scores.masked_fill((apart < 0) | (apart >= self.near), float("-inf"))
        found: Tensor = x + self.leave(scores.softmax(-1) @ value)
        return found

    @staticmethod
    def _turned(x: Tensor, angles: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            [first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()], -1
        )
