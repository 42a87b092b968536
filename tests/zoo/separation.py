"""Source separation and enhancement on waveforms."""

import torch
from torch import nn
from torch.nn import functional


class GlobalNorm(nn.Module):
    """Layer norm over channels and time, per row (Conv-TasNet)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1, channels, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean((1, 2), keepdim=True)
        variance = ((x - mean) ** 2).mean((1, 2), keepdim=True)
        return self.gain * (x - mean) / torch.sqrt(variance + 1e-8) + self.bias


class ConvTasNet(nn.Module):
    """Masks over a learned basis, from dilated separable convolutions; two sources."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, 16, 16, 8, bias=False)
        self.norm = GlobalNorm(16)
        self.bottleneck = nn.Conv1d(16, 8, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(8, 16, 1),
                nn.PReLU(),
                GlobalNorm(16),
                nn.Conv1d(16, 16, 3, padding=2**i, dilation=2**i, groups=16),
                nn.PReLU(),
                nn.GroupNorm(1, 16),
                nn.Conv1d(16, 8, 1),
            )
            for i in range(3)
        )
        self.masks = nn.Conv1d(8, 32, 1)
        self.decoder = nn.ConvTranspose1d(16, 1, 16, 8, bias=False)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        basis = torch.relu(self.encoder(wave.unsqueeze(1)))
        x = self.bottleneck(self.norm(basis))
        for block in self.blocks:
            x = x + block(x)
        rows, channels, frames = basis.shape
        masked = torch.sigmoid(self.masks(x)).view(rows, 2, channels, frames) * basis.unsqueeze(1)
        waves: torch.Tensor = self.decoder(masked.reshape(rows * 2, channels, frames))
        return waves.reshape(rows, 2, -1)


class WaveUNet(nn.Module):
    """Two strided convolutions down, two up, with a skip that is cut to fit."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv1d(1, 8, 8, 4, 2), nn.Conv1d(8, 16, 8, 4, 2)])
        self.norms = nn.ModuleList([nn.GroupNorm(1, 8), nn.GroupNorm(4, 16)])
        self.up = nn.ModuleList([nn.ConvTranspose1d(16, 8, 8, 4, 2), nn.ConvTranspose1d(16, 1, 8, 4, 2)])

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        first = functional.gelu(self.norms[0](self.down[0](wave.unsqueeze(1))))
        second = functional.gelu(self.norms[1](self.down[1](first)))
        x = functional.gelu(self.up[0](second))
        joined = torch.cat([x, first[..., : x.shape[-1]]], 1)
        result: torch.Tensor = self.up[1](joined)
        return result.squeeze(1)
