"""Steps as public toolkits export them: subsampling in front, caches of all layers in one tensor, offsets, lengths."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.family import StepFamily, data, state

WIDTH, HEADS, SIZE, KERNEL, LAYERS = 8, 2, 4, 5, 2


def sinusoids(count: int) -> Tensor:
    """Sines beside cosines of places, [1, count, width]."""
    table, place = torch.zeros(count, WIDTH), torch.arange(count).unsqueeze(1)
    turns = torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH))
    table[:, 0::2], table[:, 1::2] = torch.sin(place * turns), torch.cos(place * turns)
    return table.unsqueeze(0)


class Forward(nn.Sequential):
    """The part of a layer that sees one frame."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, 16), nn.SiLU(), nn.Linear(16, WIDTH))


class SubsamplingByFour(nn.Module):
    """Two convolutions over time and bins, each of every second frame."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, WIDTH, 3, 2), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, 2), nn.ReLU())
        self.out = nn.Linear(WIDTH * (((bins - 1) // 2 - 1) // 2), WIDTH)

    def forward(self, x: Any) -> Any:
        x = self.conv(x.unsqueeze(1))
        rows, channels, frames, bins = x.size()
        return self.out(x.transpose(1, 2).contiguous().view(rows, frames, channels * bins))


class RelativeAttention(nn.Module):
    """Scores by content and by position, with a bias each, over a cache of keys beside values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.places = nn.Linear(WIDTH, WIDTH, bias=False)
        self.by_content, self.by_place = (nn.Parameter(torch.randn(HEADS, SIZE)) for _ in range(2))

    def forward(self, x: Any, places: Any, cache: Any) -> Any:
        rows = x.size(0)
        q = self.q(x).view(rows, -1, HEADS, SIZE)
        k, v = (each(x).view(rows, -1, HEADS, SIZE).transpose(1, 2) for each in (self.k, self.v))
        if cache.size(0) > 0:
            keys, values = torch.split(cache, cache.size(-1) // 2, dim=-1)
            k, v = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        new = torch.cat((k, v), dim=-1)
        p = self.places(places).view(places.size(0), -1, HEADS, SIZE).transpose(1, 2)
        by_content = (q + self.by_content).transpose(1, 2) @ k.transpose(-2, -1)
        by_place = (q + self.by_place).transpose(1, 2) @ p.transpose(-2, -1)
        weights = torch.softmax((by_content + by_place) / math.sqrt(SIZE), dim=-1)
        return self.o((weights @ v).transpose(1, 2).contiguous().view(rows, -1, WIDTH)), new


class CausalModule(nn.Module):
    """A gated convolution that hears the frames before, which are cached."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Conv1d(WIDTH, 2 * WIDTH, 1), nn.Conv1d(WIDTH, WIDTH, 1)
        self.deep, self.norm = nn.Conv1d(WIDTH, WIDTH, KERNEL, groups=WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Any, cache: Any) -> Any:
        x = x.transpose(1, 2)
        x = functional.pad(x, (KERNEL - 1, 0)) if cache.size(2) == 0 else torch.cat((cache, x), dim=2)
        new = x[:, :, -(KERNEL - 1) :]
        x = self.deep(functional.glu(self.into(x), dim=1)).transpose(1, 2)
        return self.out(functional.silu(self.norm(x)).transpose(1, 2)).transpose(1, 2), new


class ConformerLayer(nn.Module):
    """Half a forward part, attention, a convolution, half a forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.convolve, self.before, self.behind = RelativeAttention(), CausalModule(), Forward(), Forward()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))

    def forward(self, x: Any, places: Any, attended: Any, convolved: Any) -> Any:
        x = x + 0.5 * self.before(self.norms[0](x))
        heard, attended = self.attend(self.norms[1](x), places, attended)
        x = x + heard
        heard, convolved = self.convolve(self.norms[2](x), convolved)
        x = x + heard
        return self.norms[4](x + 0.5 * self.behind(self.norms[3](x))), attended, convolved


class ForwardChunk(nn.Module):
    """A chunk with the frames that its subsampling overlaps, of one row, an offset as a number (U2++ of WeNet)."""

    table: Tensor

    def __init__(self, kept: int = 8) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(10))
        self.register_buffer("scale", torch.rand(10) + 0.5)
        self.register_buffer("table", sinusoids(800))
        self.embed, self.kept = SubsamplingByFour(10), kept
        self.layers: Any = nn.ModuleList(ConformerLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, chunk: Any, offset: Any, attended: Any, convolved: Any) -> Any:
        x = self.embed((chunk - self.mean) * self.scale) * math.sqrt(WIDTH)
        cached = attended.size(2)
        size = cached + x.size(1)
        places = self.table[:, offset - cached : offset - cached + size]
        first = max(size - self.kept, 0)
        new_attended, new_convolved = [], []
        for at, layer in enumerate(self.layers):
            x, keys, context = layer(x, places, attended[at : at + 1], convolved[at])
            new_attended.append(keys[:, :, first:, :])
            new_convolved.append(context.unsqueeze(0))
        return self.norm(x), torch.cat(new_attended, dim=0), torch.cat(new_convolved, dim=0)


class CacheAware(nn.Module):
    """States of all layers in front of the batch, a count of what is valid, masks of lengths (FastConformer)."""

    table: Tensor

    def __init__(self, kept: int = 8) -> None:
        super().__init__()
        self.kept = kept
        self.register_buffer("table", sinusoids(2 * 32 - 1))
        self.pre = nn.Sequential(nn.Conv1d(6, WIDTH, 3, 2), nn.ReLU())
        self.layers: Any = nn.ModuleList(CacheAwareLayer(kept) for _ in range(LAYERS))

    def forward(self, signal: Any, channel: Any, time: Any, valid: Any) -> Any:
        x = self.pre(signal).transpose(1, 2)
        frames = x.size(1)
        size = self.kept + frames
        middle = self.table.size(1) // 2
        places = self.table[:, middle - size + 1 : middle + size]
        at = torch.arange(size, device=x.device)
        heard = at.unsqueeze(0) >= (self.kept - valid).unsqueeze(1)
        near = (at[self.kept :].unsqueeze(1) - at.unsqueeze(0) >= 0) & (at[self.kept :].unsqueeze(1) - at <= self.kept)
        hidden = ~(heard.unsqueeze(1) & near.unsqueeze(0))
        channels, times = [], []
        for layer, kept, context in zip(self.layers, channel, time, strict=True):
            x, new_channel, new_time = layer(x, places, hidden, kept, context)
            channels.append(new_channel)
            times.append(new_time)
        valid = torch.clamp(valid + frames, max=self.kept)
        return x.transpose(1, 2), torch.stack(channels), torch.stack(times), valid


class CacheAwareLayer(nn.Module):
    """Attention over inputs of earlier calls, by distance, and a convolution."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o, self.places = (nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.by_content, self.by_place = (nn.Parameter(torch.randn(HEADS, SIZE)) for _ in range(2))
        self.norms, self.kept = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3)), kept
        self.convolve, self.forward_part = CausalModule(), Forward()

    def forward(self, x: Any, places: Any, hidden: Any, channel: Any, time: Any) -> Any:
        heard = self.norms[0](x)
        whole = torch.cat([channel, heard], dim=1)
        new = torch.cat([channel[:, heard.size(1) :], heard], dim=1)
        rows, frames, size = x.size(0), x.size(1), whole.size(1)
        q = self.q(heard).view(rows, frames, HEADS, SIZE)
        k, v = (each(whole).view(rows, size, HEADS, SIZE).transpose(1, 2) for each in (self.k, self.v))
        p = self.places(places).view(1, -1, HEADS, SIZE).transpose(1, 2)
        by_place = (q + self.by_place).transpose(1, 2) @ p.transpose(-2, -1)
        by_place = self.shifted(by_place)[:, :, :, :size]
        scores = ((q + self.by_content).transpose(1, 2) @ k.transpose(-2, -1) + by_place) / math.sqrt(SIZE)
        mask = hidden.unsqueeze(1)
        weights = torch.softmax(scores.masked_fill(mask, -10000.0), dim=-1).masked_fill(mask, 0.0)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(rows, -1, WIDTH))
        found, time = self.convolve(self.norms[1](x), time)
        x = x + found
        return x + self.forward_part(self.norms[2](x)), new, time

    def shifted(self, scores: Any) -> Any:
        rows, count, queries, places = scores.size()
        scores = functional.pad(scores, pad=(1, 0)).view(rows, count, -1, queries)
        return scores[:, :, 1:].view(rows, count, queries, places)


class Enhancer(nn.Module):
    """Gains of bands and filters of the lowest bins, of recurrences whose states are stacked (DeepFilterNet)."""

    spread: Tensor

    def __init__(self, bins: int = 12, bands: int = 6, low: int = 4, order: int = 3) -> None:
        super().__init__()
        self.bins, self.low, self.order = bins, low, order
        self.register_buffer("spread", torch.rand(bands, bins))
        self.bands, self.complex = nn.Conv1d(bands, WIDTH, 3), nn.Conv2d(2, 2, (3, 1))
        self.into = nn.Linear(2 * low, WIDTH)
        self.encoder, self.gains = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.GRU(WIDTH, WIDTH, 2, batch_first=True)
        self.filters = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.gain, self.filter = nn.Linear(WIDTH, bands), nn.Linear(WIDTH, low * order * 2)

    def forward(self, spec: Any, past: Any, power: Any, first: Any, second: Any, third: Any) -> Any:
        # spec [rows, 2, frames, bins], past [rows, 2, order - 1, bins], power [rows, bands]
        rows, _, frames, _ = spec.shape
        whole = torch.cat([past, spec], dim=2)
        energy = (whole.square().sum(1) @ self.spread.t() + 1e-6).log10() * 10
        means = []
        for at in range(frames):
            power = power * 0.9 + energy[:, at + self.order - 1] * 0.1
            means.append(power)
        norm = torch.cat([energy[:, : self.order - 1], energy[:, self.order - 1 :] - torch.stack(means, 1)], dim=1)
        low = self.complex(whole[..., : self.low]).permute(0, 2, 1, 3).reshape(rows, frames, -1)
        x = functional.relu(self.bands(norm.transpose(1, 2)).transpose(1, 2) + self.into(low))
        x, first = self.encoder(x, first)
        y, second = self.gains(x, second)
        gains = torch.sigmoid(self.gain(y)) @ self.spread
        z, third = self.filters(x, third)
        taps = torch.tanh(self.filter(z)).view(rows, frames, self.order, self.low, 2)
        windows = whole[..., : self.low].unfold(2, self.order, 1).permute(0, 2, 4, 3, 1)
        real = (windows[..., 0] * taps[..., 0] - windows[..., 1] * taps[..., 1]).sum(2)
        imaginary = (windows[..., 0] * taps[..., 1] + windows[..., 1] * taps[..., 0]).sum(2)
        filtered = torch.stack([real, imaginary], dim=1)
        out = torch.cat([filtered, (spec * gains.unsqueeze(1))[..., self.low :]], dim=-1)
        return out, whole[:, :, -(self.order - 1) :], power, first, second, third


class VoiceDetector(nn.Module):
    """Samples behind a context of some, a spectrum by convolution, and one state of two halves (silero)."""

    def __init__(self, context: int = 8) -> None:
        super().__init__()
        self.context = context
        self.basis = nn.Conv1d(1, 2 * 9, 16, stride=8, bias=False)
        self.encoder = nn.Sequential(
            nn.Conv1d(9, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, WIDTH, 3, stride=2, padding=1), nn.ReLU()
        )
        self.cell, self.head = nn.LSTMCell(WIDTH, WIDTH), nn.Sequential(nn.ReLU(), nn.Conv1d(WIDTH, 1, 1), nn.Sigmoid())

    def forward(self, x: Any, context: Any, state: Any) -> Any:
        x = torch.cat([context, x], dim=1)
        context = x[..., -self.context :]
        padded = functional.pad(x, (0, 8), "reflect")
        found = self.basis(padded.unsqueeze(1))
        real, imaginary = found[:, :9], found[:, 9:]
        heard = self.encoder(torch.sqrt(real**2 + imaginary**2))
        h, c = self.cell(heard.mean(-1), (state[0], state[1]))
        return self.head(h.unsqueeze(-1)).mean(dim=2), context, torch.stack([h, c])


class Predictor(nn.Module):
    """Weights of frames that fire where their sum passes one; what is left over goes on (CIF of Paraformer)."""

    def __init__(self, ahead: int = 2) -> None:
        super().__init__()
        self.ahead = ahead
        self.conv, self.out = nn.Conv1d(WIDTH, WIDTH, 3, groups=WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, hidden: Any, past: Any, left: Any, alpha: Any) -> Any:
        # hidden [rows, frames, width], past [rows, 2, width]; left [rows, width] and alpha [rows] have not fired
        whole = torch.cat([past, hidden], dim=1)
        memory = self.conv(whole.transpose(1, 2)).transpose(1, 2)
        alphas = torch.relu(torch.sigmoid(self.out(torch.relu(memory + whole[:, self.ahead :]))) * 1.0 - 0.05).squeeze(
            -1
        )
        fires, frames = [], []
        for at in range(hidden.size(1)):
            new = alphas[:, at]
            missing = torch.ones_like(alpha) - alpha
            alpha = alpha + new
            fires.append(alpha)
            is_fired = alpha >= 1.0
            alpha = torch.where(is_fired, alpha - 1.0, alpha)
            taken = torch.where(is_fired, missing, new)
            left = left + taken[:, None] * whole[:, at + self.ahead]
            frames.append(left)
            left = torch.where(is_fired[:, None], (new - taken)[:, None] * whole[:, at + self.ahead], left)
        return torch.stack(fires, 1), torch.stack(frames, 1), whole[:, -2:], left, alpha


FAMILIES = (
    StepFamily(
        "wenet_forward_chunk",
        ForwardChunk,
        {
            "chunk": data("batch", 19, 10, original=(1, 19, 10)),
            "offset": data("batch", dtype="int64", original=(), counts_along="cached"),
            "attended": state(
                "new_attended", "batch", LAYERS, HEADS, "cached", 2 * SIZE, original=(LAYERS, HEADS, "cached", 2 * SIZE)
            ),
            "convolved": state(
                "new_convolved", "batch", LAYERS, WIDTH, KERNEL - 1, original=(LAYERS, 1, WIDTH, KERNEL - 1)
            ),
        },
        ("y", "new_attended", "new_convolved"),
        windows={"cached": 8},
    ),
    StepFamily(
        "fastconformer_cache_aware",
        CacheAware,
        {
            "signal": data("batch", 6, 9),
            "channel": state("new_channel", LAYERS, "batch", 8, WIDTH),
            "time": state("new_time", LAYERS, "batch", WIDTH, KERNEL - 1),
            "valid": state("new_valid", "batch", dtype="int64"),
        },
        ("y", "new_channel", "new_time", "new_valid"),
    ),
    StepFamily(
        "deep_filter_net",
        Enhancer,
        {
            "spec": data("batch", 2, 2, 12),
            "past": state("new_past", "batch", 2, 2, 12),
            "power": state("new_power", "batch", 6),
            "first": state("new_first", 1, "batch", WIDTH),
            "second": state("new_second", 2, "batch", WIDTH),
            "third": state("new_third", 1, "batch", WIDTH),
        },
        ("y", "new_past", "new_power", "new_first", "new_second", "new_third"),
    ),
    StepFamily(
        "voice_detector",
        VoiceDetector,
        {
            "x": data("batch", 64),
            "context": state("new_context", "batch", 8),
            "state": state("new_state", 2, "batch", WIDTH),
        },
        ("y", "new_context", "new_state"),
    ),
    StepFamily(
        "paraformer_predictor",
        Predictor,
        {
            "hidden": data("batch", 4, WIDTH),
            "past": state("new_past", "batch", 2, WIDTH),
            "left": state("new_left", "batch", WIDTH),
            "alpha": state("new_alpha", "batch"),
        },
        ("fires", "frames", "new_past", "new_left", "new_alpha"),
    ),
)
