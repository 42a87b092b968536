"""Attention layers as speech toolkits write them."""

import math

import torch
from torch import nn
from torch.nn import functional


class TorchEncoder(nn.Module):
    """The encoder that comes with PyTorch, with or without a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 48, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        padding = None if mask is None else mask == 0
        result: torch.Tensor = self.encoder(self.project(x), src_key_padding_mask=padding)
        return result


class TorchDecoder(nn.Module):
    """The decoder that comes with PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 2, 48, batch_first=True), 2)
        self.output = nn.Linear(32, 40)

    def forward(self, ids: torch.Tensor, memory: torch.Tensor, memory_mask: torch.Tensor) -> torch.Tensor:
        size = ids.shape[1]
        causal = torch.triu(torch.full((size, size), float("-inf")), 1)
        hidden = self.decoder(
            self.embed(ids), memory, tgt_mask=causal, tgt_is_causal=False, memory_key_padding_mask=memory_mask == 0
        )
        result: torch.Tensor = self.output(hidden)
        return result


class Conformer(nn.Module):
    """One layer as in ESPnet and WeNet: convolutional subsampling, relative positions by shifting, optional mask."""

    WIDTH, HEADS, POSITIONS = 32, 2, 200

    def __init__(self) -> None:
        super().__init__()
        d, heads = self.WIDTH, self.HEADS
        self.subsample = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.enter = nn.Linear(24, d)
        self.feed = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 48), nn.SiLU(), nn.Linear(48, d)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.query, self.key, self.value, self.output = (nn.Linear(d, d) for _ in range(4))
        self.position = nn.Linear(d, d, bias=False)
        self.content_bias = nn.Parameter(torch.randn(heads, d // heads) / 10)
        self.position_bias = nn.Parameter(torch.randn(heads, d // heads) / 10)
        self.gate = nn.Conv1d(d, 2 * d, 1)
        self.depthwise = nn.Conv1d(d, d, 7, padding=3, groups=d)
        self.batch_norm = nn.BatchNorm1d(d)
        self.leave = nn.Conv1d(d, d, 1)
        places = torch.arange(self.POSITIONS - 1, -self.POSITIONS, -1.0).unsqueeze(1)
        angles = places * torch.exp(torch.arange(0, d, 2) * -(math.log(10000.0) / d))
        self.table = nn.Buffer(torch.stack([torch.sin(angles), torch.cos(angles)], -1).flatten(1).unsqueeze(0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.subsample(x.unsqueeze(1))
        rows, channels, frames, bands = x.shape
        x = self.enter(x.transpose(1, 2).reshape(rows, frames, channels * bands)) * math.sqrt(self.WIDTH)
        valid = None if mask is None else mask[:, :-2:2][:, :-2:2].bool()
        x = x + 0.5 * self.feed[0](x)
        x = x + self.attend(self.norms[0](x), valid)
        x = x + self.convolve(self.norms[1](x), valid)
        x = x + 0.5 * self.feed[1](x)
        result: torch.Tensor = self.norms[2](x)
        return result

    def attend(self, x: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """Self-attention with relative positions."""
        rows, frames, _ = x.shape
        shape = (rows, frames, self.HEADS, -1)
        query, key, value = (layer(x).view(shape) for layer in (self.query, self.key, self.value))
        key, value = key.transpose(1, 2), value.transpose(1, 2)
        table = self.table[:, self.POSITIONS - frames : self.POSITIONS - 1 + frames]
        position = self.position(table).view(1, -1, self.HEADS, self.WIDTH // self.HEADS).transpose(1, 2)
        by_content = (query + self.content_bias).transpose(1, 2) @ key.transpose(-2, -1)
        by_position = (query + self.position_bias).transpose(1, 2) @ position.transpose(-2, -1)
        zero = torch.zeros(rows, self.HEADS, frames, 1)
        shifted = torch.cat([zero, by_position], -1).view(rows, self.HEADS, 2 * frames, frames)[:, :, 1:]
        by_position = shifted.view(rows, self.HEADS, frames, 2 * frames - 1)[..., :frames]
        scores = (by_content + by_position) / 4
        if valid is None:
            weights = torch.softmax(scores, -1)
        else:
            free = ~valid[:, None, None]
            weights = torch.softmax(scores.masked_fill(free, float("-inf")), -1).masked_fill(free, 0.0)
        result: torch.Tensor = self.output((weights @ value).transpose(1, 2).reshape(rows, frames, self.WIDTH))
        return result

    def convolve(self, x: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """The convolution module; frames of padding are zero before and after it."""
        x = x.transpose(1, 2)
        if valid is not None:
            x = x.masked_fill(~valid[:, None], 0.0)
        x = self.leave(functional.silu(self.batch_norm(self.depthwise(functional.glu(self.gate(x), 1)))))
        if valid is not None:
            x = x.masked_fill(~valid[:, None], 0.0)
        return x.transpose(1, 2)


class LinearAttention(nn.Module):
    """Attention without softmax: keys and values are summed over time first."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.output = nn.Linear(16, 96), nn.Linear(32, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).chunk(3, -1)
        query, key = functional.elu(query) + 1, functional.elu(key) + 1
        summed = torch.einsum("btd,bte->bde", key, value)
        scale = 1 / (torch.einsum("btd,bd->bt", query, key.sum(1)) + 1e-6)
        result: torch.Tensor = self.output(torch.einsum("btd,bde,bt->bte", query, summed, scale))
        return result


class Alibi(nn.Module):
    """Attention in both directions with a penalty that grows with the distance."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.output = nn.Linear(16, 96), nn.Linear(32, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, frames, _ = x.shape
        query, key, value = self.project(x).view(rows, frames, 3, 2, 16).permute(2, 0, 3, 1, 4)
        places = torch.arange(frames)
        bias = -(places[:, None] - places[None]).abs() * torch.tensor([0.5, 0.25])[:, None, None]
        weights = torch.softmax(query @ key.transpose(-2, -1) / 4 + bias, -1)
        result: torch.Tensor = self.output((weights @ value).transpose(1, 2).reshape(rows, frames, 32))
        return result


class LengthMasked(nn.Module):
    """Lengths come in and become the mask, as in most toolkits; frames and their mean go out."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.query, self.output = nn.Linear(16, 24), nn.Linear(24, 24), nn.Linear(24, 12)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        valid = torch.arange(x.shape[1])[None] < lengths[:, None]
        x = torch.relu(self.enter(x))
        scores = (self.query(x) @ x.transpose(1, 2) / 5).masked_fill(~valid[:, None], float("-inf"))
        x = torch.softmax(scores, -1) @ x
        return self.output(x), (x * valid[..., None]).sum(1) / lengths[:, None]
