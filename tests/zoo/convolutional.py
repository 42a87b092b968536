"""Convolutional recognisers, speaker models and generators."""

import itertools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class QuartzNet(nn.Module):
    """Separable convolutions with batch norm; with squeeze-and-excitation over the whole utterance it is Citrinet."""

    def __init__(self, *, squeeze: bool) -> None:
        super().__init__()
        widths = [16, 24, 24]
        strides = [2, 1, 1]
        self.depthwise = nn.ModuleList(nn.Conv1d(w, w, 7, s, 3, groups=w) for w, s in zip(widths, strides, strict=True))
        self.pointwise = nn.ModuleList(nn.Conv1d(w, 24, 1) for w in widths)
        self.norms = nn.ModuleList(nn.BatchNorm1d(24) for _ in widths)
        self.squeeze = nn.ModuleList(
            nn.Sequential(nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 24)) for _ in widths if squeeze
        )
        self.output = nn.Conv1d(24, 20, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2)
        for i, (depthwise, pointwise) in enumerate(zip(self.depthwise, self.pointwise, strict=True)):
            y = self.norms[i](pointwise(depthwise(x)))
            if len(self.squeeze):
                gate = self.squeeze[i](functional.adaptive_avg_pool1d(y, 1).squeeze(-1))
                y = y * torch.sigmoid(gate).unsqueeze(-1)
            x = torch.relu(y if i == 0 else y + x)
        return functional.log_softmax(self.output(x).transpose(1, 2), -1)


def quartznet(*, squeeze: bool) -> Callable[[], QuartzNet]:
    """A factory."""
    return lambda: QuartzNet(squeeze=squeeze)


class CausalTcn(nn.Module):
    """Dilated causal convolutions with layer norm; one probability per frame."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=2**i) for i in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.output = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = convolution(functional.pad(x.transpose(1, 2), (2 ** (i + 1), 0)))
            x = x + torch.relu(norm(y.transpose(1, 2)))
        return torch.sigmoid(self.output(x))


class GreedyHead(nn.Module):
    """Best tokens, their scores, and the score of the utterance."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(16, 20)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scores, tokens = functional.log_softmax(self.output(x), -1).max(-1)
        return tokens, scores, scores.sum(1)


class StackedFrames(nn.Module):
    """Four frames make one, what is left over is dropped; the result is repeated to the old rate."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.output = nn.Linear(64, 24), nn.Linear(24, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, frames, width = x.shape
        frames = frames // 4
        x = self.enter(x[:, : frames * 4].reshape(rows, frames, 4 * width))
        result: torch.Tensor = self.output(torch.relu(x)).repeat_interleave(4, 1)
        return result


class EcapaTdnn(nn.Module):
    """Speaker model: squeeze-and-excitation, and statistics weighted by attention over time."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Conv1d(16, 24, 5, padding=2), nn.BatchNorm1d(24)
        self.dilated = nn.Conv1d(24, 24, 3, padding=2, dilation=2)
        self.squeeze = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 24), nn.Sigmoid())
        self.attention = nn.Sequential(nn.Conv1d(72, 8, 1), nn.Tanh(), nn.Conv1d(8, 24, 1))
        self.output = nn.Linear(48, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(torch.relu(self.enter(x.transpose(1, 2))))
        y = torch.relu(self.dilated(x))
        x = x + y * self.squeeze(y.mean(2)).unsqueeze(2)
        frames = x.shape[-1]
        mean = x.mean(2, keepdim=True).repeat(1, 1, frames)
        spread = torch.sqrt(x.var(2, keepdim=True).clamp(min=1e-4)).repeat(1, 1, frames)
        weights = torch.softmax(self.attention(torch.cat([x, mean, spread], 1)), 2)
        centre = (x * weights).sum(2)
        deviation = torch.sqrt(((x**2) * weights).sum(2).sub(centre**2).clamp(min=1e-4))
        result: torch.Tensor = self.output(torch.cat([centre, deviation], 1))
        return result


class XVector(nn.Module):
    """Speaker model: unpadded dilated convolutions, mean and standard deviation over time."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv1d(16, 24, 5), nn.Conv1d(24, 24, 3, dilation=2)])
        self.output = nn.Linear(48, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2)
        for convolution in self.convolutions:
            x = torch.relu(convolution(x))
        result: torch.Tensor = self.output(torch.cat([x.mean(-1), x.std(-1)], 1))
        return result


class Postnet(nn.Module):
    """Residual convolutions with batch norm over a spectrogram (Tacotron 2)."""

    def __init__(self) -> None:
        super().__init__()
        widths = [10, 16, 16, 16, 10]
        self.convolutions = nn.ModuleList(nn.Conv1d(a, b, 5, padding=2) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:])

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        y = mel.transpose(1, 2)
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = norm(convolution(y))
            y = torch.tanh(y) if i < len(self.norms) - 1 else y
        return mel + y.transpose(1, 2)


class Vocos(nn.Module):
    """ConvNeXt blocks and an inverse Fourier transform by transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Conv1d(10, 16, 7, padding=3), nn.LayerNorm(16)
        self.depthwise = nn.ModuleList(nn.Conv1d(16, 16, 7, padding=3, groups=16) for _ in range(2))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)
        )
        self.head = nn.Linear(16, 18)
        lines = torch.eye(9, dtype=torch.cfloat)
        basis = torch.cat([torch.fft.irfft(lines, n=16), torch.fft.irfft(1j * lines, n=16)]) * torch.hann_window(16)
        self.basis = nn.Buffer(basis.unsqueeze(1))

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.enter(mel.transpose(1, 2)).transpose(1, 2))
        for depthwise, block in zip(self.depthwise, self.blocks, strict=True):
            x = x + block(depthwise(x.transpose(1, 2)).transpose(1, 2))
        loudness, phase = self.head(x).chunk(2, -1)
        loudness = torch.exp(loudness).clamp(max=100)
        spectrum = torch.cat([loudness * torch.cos(phase), loudness * torch.sin(phase)], -1).transpose(1, 2)
        return functional.conv_transpose1d(spectrum, self.basis, stride=4)[:, 0]


class WaveNet(nn.Module):
    """Gated dilated causal convolutions with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.output = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 12, 1)
        self.dilated = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(4))
        self.mix = nn.ModuleList(nn.Conv1d(8, 16, 1) for _ in range(4))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = self.enter(wave.unsqueeze(1))
        skips = torch.zeros(())
        for i, (dilated, mix) in enumerate(zip(self.dilated, self.mix, strict=True)):
            value, gate = dilated(functional.pad(x, (2**i, 0))).chunk(2, 1)
            step, skip = mix(torch.tanh(value) * torch.sigmoid(gate)).chunk(2, 1)
            x, skips = x + step, skips + skip
        result: torch.Tensor = self.output(torch.relu(skips))
        return result


class Upsampled(nn.Module):
    """Twice the frames, then a convolution."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode, self.output = mode, nn.Conv1d(16, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = functional.interpolate(x.transpose(1, 2), scale_factor=2, mode=self.mode)
        result: torch.Tensor = self.output(wide)
        return result.transpose(1, 2)


def upsampled(mode: str) -> Callable[[], Upsampled]:
    """A factory."""
    return lambda: Upsampled(mode)


class VoiceConversion(nn.Module):
    """Instance norm over time takes the speaker out; a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.output = nn.InstanceNorm1d(16, affine=True), nn.Conv1d(16, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.output(self.norm(x.transpose(1, 2)))
        return result


class Diffusion(nn.Module):
    """One step of a diffusion decoder: step embedding, masked group norm, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.enter = nn.Linear(8, 16), nn.Conv1d(10, 16, 3, padding=1)
        self.attention, self.norm = nn.MultiheadAttention(16, 2, batch_first=True), nn.GroupNorm(4, 16)
        self.output = nn.Conv1d(16, 10, 3, padding=1)

    def forward(self, mel: torch.Tensor, step: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        angles = torch.exp(torch.arange(4) * -1.0) * step.float()[:, None]
        valid = mask[:, None].float()
        x = self.enter(mel.transpose(1, 2)) + self.step(torch.cat([angles.sin(), angles.cos()], -1))[..., None]
        x = (functional.mish(self.norm(x * valid)) * valid).transpose(1, 2)
        x = x + self.attention(x, x, x, key_padding_mask=mask == 0, need_weights=False)[0]
        result: torch.Tensor = self.output(x.transpose(1, 2) * valid) * valid
        return result.transpose(1, 2)


class Mirrored(nn.Module):
    """Convolution over frames that are mirrored at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(16, 8, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(functional.pad(x.transpose(1, 2), (3, 3), mode="reflect"))
        return result
