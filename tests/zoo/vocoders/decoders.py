"""Vocoders and decoders of codecs in small random form, written from their papers.

Sources: HiFi-GAN (Kong et al. 2020, arXiv 2010.05646); MelGAN (Kumar et al. 2019, arXiv 1910.06711) and its multi-band
form (Yang et al. 2020, arXiv 2005.05106); Parallel WaveGAN (Yamamoto et al. 2019, arXiv 1910.11480); BigVGAN (Lee et
al. 2022, arXiv 2206.04658); SoundStream (Zeghidour et al. 2021, arXiv 2107.03312); EnCodec (Defossez et al. 2022,
arXiv 2210.13438); DAC (Kumar et al. 2023, arXiv 2306.06546); SNAC (Siuzdak et al. 2024, arXiv 2410.14411); Mimi
(Defossez et al. 2024, arXiv 2410.00037); Vocos (Siuzdak 2023, arXiv 2306.00814); WaveRNN (Kalchbrenner et al. 2018,
arXiv 1802.08435); neural source-filter models (Wang et al. 2019, arXiv 1904.12088).
"""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.vocoders.layers import (
    ConvNext,
    NearAttention,
    Residual,
    Snake,
    SpectrumToSound,
    Upsampling,
    convolution,
)

BINS, WIDTH, CODES, BOOKS = 10, 16, 20, 2


class HifiGan(nn.Module):
    """Transposed convolutions, each followed by residual blocks of several kernels, whose results are averaged."""

    def __init__(self, *, causal: bool, act: type[nn.Module] | None = None, strides: tuple[int, ...] = (4, 2)) -> None:
        super().__init__()
        self.enter = convolution(BINS, WIDTH, 7, causal=causal)
        widths = [WIDTH // 2**level for level in range(len(strides) + 1)]
        pairs = list(itertools.pairwise(widths))
        self.spread = nn.ModuleList(
            Upsampling(*pair, stride, causal=causal) for pair, stride in zip(pairs, strides, strict=True)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(*(Residual(width, taps, apart, act, causal=causal) for apart in (1, 3)))
                for taps in (3, 5)
            )
            for width in widths[1:]
        )
        self.leave = convolution(widths[-1], 1, 7, causal=causal)

    def forward(self, mel: Tensor) -> Tensor:
        """Mel [batch, 10, time]; waveform [batch, 8 * time]."""
        x = self.enter(mel)
        for spread, blocks in zip(self.spread, self.blocks, strict=True):
            x = spread(functional.leaky_relu(x, 0.1))
            assert isinstance(blocks, nn.ModuleList)
            x = torch.stack([block(x) for block in blocks]).mean(0)
        return torch.tanh(self.leave(functional.leaky_relu(x)))[:, 0]


class MelGan(nn.Module):
    """Convolutions over entries that are mirrored at the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.ReflectionPad1d(3), nn.Conv1d(BINS, WIDTH, 7))
        self.spread = Upsampling(WIDTH, WIDTH // 2, 4, causal=False)
        self.leave = nn.Sequential(nn.ReflectionPad1d(3), nn.Conv1d(WIDTH // 2, 1, 7))

    def forward(self, mel: Tensor) -> Tensor:
        """Mel [batch, 10, time]; waveform [batch, 4 * time]."""
        x = self.spread(functional.leaky_relu(self.enter(mel), 0.2))
        return torch.tanh(self.leave(functional.leaky_relu(x, 0.2)))[:, 0]


class MultiBand(nn.Module):
    """Four bands at a quarter of the rate, spread by zeros and joined by a bank of filters."""

    spreading: Tensor

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.enter = convolution(BINS, WIDTH, 7, causal=causal)
        self.spread = Upsampling(WIDTH, WIDTH // 2, 2, causal=causal)
        self.block = Residual(WIDTH // 2, 3, 3, None, causal=causal)
        self.bands = convolution(WIDTH // 2, 4, 7, causal=causal)
        self.filters = convolution(4, 1, 13, causal=causal)
        self.register_buffer("spreading", torch.eye(4)[:, :, None] * torch.tensor([4.0, 0, 0, 0]))

    def forward(self, mel: Tensor) -> Tensor:
        """Mel [batch, 10, time]; waveform [batch, 8 * time]."""
        bands = torch.tanh(self.bands(self.block(self.spread(self.enter(mel)))))
        fine = functional.conv_transpose1d(bands, self.spreading, stride=4)
        found: Tensor = self.filters(fine)[:, 0]
        return found


class ParallelWaveGan(nn.Module):
    """Noise through gated dilated convolutions, conditioned on frames that are repeated and smoothed."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, WIDTH, 1)
        taps = 9
        pads = (taps - 1, 0, 0, 0) if causal else (taps // 2, taps // 2, 0, 0)
        self.smooth = nn.ModuleList(nn.Sequential(nn.ZeroPad2d(pads), nn.Conv2d(1, 1, (1, taps))) for _ in range(2))
        self.gates = nn.ModuleList(convolution(WIDTH, 2 * WIDTH, 3, causal=causal, apart=2**n) for n in range(3))
        self.conditions = nn.ModuleList(nn.Conv1d(BINS, 2 * WIDTH, 1) for _ in range(3))
        self.outs = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(3))
        self.leave = nn.Sequential(nn.ReLU(), nn.Conv1d(WIDTH, WIDTH, 1), nn.ReLU(), nn.Conv1d(WIDTH, 1, 1))

    def forward(self, mel: Tensor, noise: Tensor) -> Tensor:
        """Mel [batch, 10, time], noise [batch, time, 8]; waveform [batch, 8 * time]."""
        condition = mel[:, None]
        for smooth, factor in zip(self.smooth, (4, 2), strict=True):
            condition = smooth(functional.interpolate(condition, scale_factor=(1.0, float(factor)), mode="nearest"))
        x, total = self.enter(noise.flatten(1)[:, None]), torch.zeros(1)
        for gate, add, out, skip in zip(self.gates, self.conditions, self.outs, self.skips, strict=True):
            first, second = (gate(x) + add(condition[:, 0])).chunk(2, dim=1)
            y = torch.tanh(first) * torch.sigmoid(second)
            x, total = (x + out(y)) * math.sqrt(0.5), total + skip(y)
        found: Tensor = self.leave(total)[:, 0]
        return found


class AntiAliased(nn.Module):
    """Snake at twice the rate, between two low-pass filters over entries that are repeated at the edges."""

    taps: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.act, self.channels = Snake(channels), channels
        self.register_buffer("taps", torch.hann_window(8, periodic=False)[None, None].expand(channels, 1, 8) / 4)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, n], same shape."""
        x = functional.pad(x, (2, 2), mode="replicate")
        x = functional.conv_transpose1d(x, self.taps, stride=2, groups=self.channels)[..., 7:-7]
        x = functional.pad(self.act(x), (3, 3), mode="replicate")
        return functional.conv1d(x, self.taps, stride=2, groups=self.channels)


class BigVgan(nn.Module):
    """Transposed convolutions and residual blocks with filtered periodic activations."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.spread = convolution(BINS, WIDTH, 7, causal=False), Upsampling(WIDTH, 8, 4, causal=False)
        self.act, self.mix = AntiAliased(8), convolution(8, 8, 3, causal=False)
        self.leave = convolution(8, 1, 7, causal=False)

    def forward(self, mel: Tensor) -> Tensor:
        """Mel [batch, 10, time]; waveform [batch, 4 * time]."""
        x = self.spread(self.enter(mel))
        return torch.tanh(self.leave(x + self.mix(self.act(x))))[:, 0]


class Quantised(nn.Module):
    """Codes of several books to the sum of their entries."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList(nn.Embedding(CODES, WIDTH) for _ in range(BOOKS))

    def looked_up(self, codes: Tensor) -> Tensor:
        """Codes [batch, time, books]; [batch, width, time]."""
        return torch.stack([book(codes[..., at]) for at, book in enumerate(self.books)]).sum(0).transpose(1, 2)


class Seanet(Quantised):
    """The decoder of SoundStream and EnCodec: transposed convolutions and residual units, with or without an LSTM."""

    def __init__(self, *, lstm: bool = False, mirrored: bool = False, normed: bool = False) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2) if lstm else None
        first = nn.Sequential(nn.ReflectionPad1d((6, 0)), nn.Conv1d(WIDTH, WIDTH, 7))
        self.enter = first if mirrored else convolution(WIDTH, WIDTH, 7, causal=True)
        self.levels = nn.ModuleList(
            nn.Sequential(
                nn.ELU(),
                Upsampling(channels, channels // 2, stride, causal=True),
                nn.GroupNorm(1, channels // 2) if normed else nn.Identity(),
                Residual(channels // 2, 3, 1, nn.ELU, causal=True),
                Residual(channels // 2, 3, 3, nn.ELU, causal=True),
            )
            for channels, stride in ((WIDTH, 4), (WIDTH // 2, 2))
        )
        self.leave = nn.Sequential(nn.ELU(), convolution(WIDTH // 4, 1, 7, causal=True))

    def forward(self, codes: Tensor) -> Tensor:
        """Codes [batch, time, 2]; waveform [batch, 8 * time]."""
        return self.sound(self.looked_up(codes))

    def sound(self, x: Tensor) -> Tensor:
        """[batch, width, n] to [batch, 8 * n]."""
        x = self.enter(x)
        if self.lstm is not None:
            x = x + self.lstm(x.permute(2, 0, 1))[0].permute(1, 2, 0)
        for level in self.levels:
            x = level(x)
        found: Tensor = self.leave(x)[:, 0]
        return found


class Dac(Quantised):
    """Snake activations and three residual units of growing dilation behind each transposed convolution."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.enter = convolution(WIDTH, WIDTH, 7, causal=causal)
        self.spread = nn.Sequential(Snake(WIDTH), Upsampling(WIDTH, WIDTH // 2, 4, causal=causal))
        self.loudness = nn.Conv1d(WIDTH // 2, WIDTH // 2, 1)
        units = (Residual(WIDTH // 2, 7, apart, Snake, causal=causal) for apart in (1, 3, 9))
        self.units = nn.Sequential(*units)
        self.leave = nn.Sequential(Snake(WIDTH // 2), convolution(WIDTH // 2, 1, 7, causal=causal), nn.Tanh())

    def forward(self, codes: Tensor, noise: Tensor | None = None) -> Tensor:
        """Codes [batch, time, 2], in the form with noise noise [batch, time, 4]; waveform [batch, 4 * time]."""
        x = self.spread(self.enter(self.looked_up(codes)))
        if noise is not None:
            x = x + self.loudness(x) * noise.flatten(1)[:, None]
        found: Tensor = self.leave(self.units(x))[:, 0]
        return found


class Mimi(Seanet):
    """Attention over the newest frames, in front of the doubled rate or behind it, then transposed convolutions."""

    def __init__(self, *, doubled_first: bool) -> None:
        super().__init__()
        self.doubled_first = doubled_first
        self.doubled = Upsampling(WIDTH, WIDTH, 2, causal=True)
        self.layers = nn.Sequential(*(NearAttention(WIDTH, 6) for _ in range(2)))

    def forward(self, codes: Tensor) -> Tensor:
        """Codes [batch, time, 2]; waveform [batch, 16 * time]."""
        x = self.looked_up(codes)
        x = self.doubled(x) if self.doubled_first else x
        x = self.layers(x.transpose(1, 2)).transpose(1, 2)
        return self.sound(x if self.doubled_first else self.doubled(x))


class Vocos(nn.Module):
    """ConvNeXt blocks at the rate of frames, and a spectrum of every frame that becomes sound."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.enter = convolution(BINS, WIDTH, 7, causal=causal)
        self.blocks = nn.Sequential(*(ConvNext(WIDTH, causal=causal) for _ in range(2)))
        self.head = SpectrumToSound(WIDTH, 8, causal=causal)

    def forward(self, mel: Tensor) -> Tensor:
        """Mel [batch, 10, time]; waveform [batch, 8 * time]."""
        found: Tensor = self.head(self.blocks(self.enter(mel)))
        return found


class WaveRnn(nn.Module):
    """A recurrence over samples, conditioned on repeated frames; its samples so far are an input."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = convolution(BINS, WIDTH, 5, causal=True)
        self.gru = nn.GRU(WIDTH + 1, WIDTH, batch_first=True)
        self.leave = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, mel: Tensor, samples: Tensor) -> Tensor:
        """Mel [batch, 10, time], samples so far [batch, time, 8]; scores of the next ones [batch, 8 * time]."""
        frames = self.enter(mel).transpose(1, 2).repeat_interleave(8, dim=1)
        before = functional.pad(samples.flatten(1), (1, 0))[:, :-1]
        heard, _ = self.gru(torch.cat([frames, before[..., None]], dim=-1))
        found: Tensor = self.leave(heard)[..., 0]
        return found


class SourceFilter(nn.Module):
    """Sines of a pitch whose phase is summed up over all samples, and noise, through dilated convolutions."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.enter = convolution(BINS, WIDTH, 5, causal=causal)
        self.merge = nn.Linear(4, 1)
        self.lift = nn.Conv1d(1, WIDTH, 1)
        self.filters = nn.ModuleList(convolution(WIDTH, WIDTH, 3, causal=causal, apart=2**n) for n in range(4))
        self.leave = nn.Conv1d(WIDTH, 1, 1)

    def forward(self, mel: Tensor, pitch: Tensor, noise: Tensor) -> Tensor:
        """Mel [batch, 10, time], pitch in turns per sample [batch, time], noise [batch, time, 8]; [batch, 8 * time]."""
        advance = pitch.repeat_interleave(8, dim=1)
        turns = advance.cumsum(1)[..., None] * torch.arange(1, 5)
        source = self.merge(0.1 * torch.sin(2 * math.pi * turns)) + 0.03 * noise.flatten(1)[..., None]
        x = self.lift(torch.tanh(source).transpose(1, 2))
        condition = self.enter(mel).repeat_interleave(8, dim=2)
        for each in self.filters:
            x = x + torch.tanh(each(x) + condition)
        found: Tensor = self.leave(x)[:, 0]
        return found


class Bidirectional(nn.Module):
    """Recurrences in both directions over frames, as in early vocoders' conditioning networks."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(BINS, WIDTH // 2, bidirectional=True, batch_first=True)
        self.spread = Upsampling(WIDTH, 1, 4, causal=True)

    def forward(self, mel: Tensor) -> Tensor:
        """Mel [batch, 10, time]; waveform [batch, 4 * time]."""
        heard, _ = self.gru(mel.transpose(1, 2))
        found: Tensor = self.spread(heard.transpose(1, 2))[:, 0]
        return found
