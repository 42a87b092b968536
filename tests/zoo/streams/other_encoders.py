"""Encoders whose states are stacked over layers, or that attend to frames that they do not keep."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.attention import WIDTH, Attention, heads, merge
from tests.zoo.streams.family import Given, StepFamily, data, state

KEPT = 8
"""Frames of the faster stack that its layers look back."""
LAYERS = (2, 1)
RATES = (1, 2)


class Mean(nn.Module):
    """What every frame differs from the mean of all so far, of which a count and a mean are handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Any, seen: Any, mean: Any) -> Any:
        counts = seen + torch.arange(1, x.size(0) + 1).unsqueeze(1)
        means = (x.cumsum(0) + mean * seen.unsqueeze(1)) / counts.unsqueeze(2)
        return x + self.out(means), counts[-1], means[-1]


class Gated(nn.Module):
    """A gated convolution over frames, which lie in front of the batch."""

    def __init__(self, kernel: int = 5) -> None:
        super().__init__()
        self.into, self.deep = nn.Conv1d(WIDTH, 2 * WIDTH, 1), nn.Conv1d(WIDTH, WIDTH, kernel, groups=WIDTH)
        self.out, self.kept = nn.Conv1d(WIDTH, WIDTH, 1), kernel - 1

    def forward(self, x: Any, past: Any) -> Any:
        heard = torch.cat([past, functional.glu(self.into(x.permute(1, 2, 0)), 1)], 2)
        found = self.deep(heard)
        return x + self.out(found * torch.sigmoid(found - 1)).permute(2, 0, 1), heard[:, :, -self.kept :]


class Relative(nn.Module):
    """Attention of 2 heads by distance, whose weights are used a second time with other values."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.places = nn.Linear(WIDTH, 2 * WIDTH + 8), nn.Linear(WIDTH, 4, bias=False)
        self.more, self.out, self.out_again = nn.Linear(WIDTH, 4), nn.Linear(4, WIDTH), nn.Linear(4, WIDTH)

    def forward(self, x: Any, places: Any, keys: Any, values: Any) -> Any:
        frames, rows, _ = x.shape
        query, key, value, place = self.into(x).split([WIDTH, WIDTH, 4, 4], -1)
        key, value = torch.cat([keys, key]), torch.cat([values, value])
        size, kept = key.size(0), keys.size(0)
        query = query.reshape(frames, rows, 2, 4).permute(1, 2, 0, 3)
        place = place.reshape(frames, rows, 2, 2).permute(1, 2, 0, 3)
        known = self.places(places).reshape(1, -1, 2, 2).permute(0, 2, 3, 1)
        by_place = place @ known
        at = torch.arange(frames - 1, -1, -1).unsqueeze(1) + torch.arange(size)
        by_place = torch.gather(by_place, 3, at.expand(rows, 2, frames, size))
        scores = query @ key.reshape(size, rows, 2, 4).permute(1, 2, 3, 0) + by_place
        weights = scores.view(rows * 2, frames, size).softmax(-1)
        return x + self.out(self._heard(weights, value)), weights, key[-kept:], value[-kept:]

    def again(self, x: Any, weights: Any, values: Any) -> Any:
        kept = values.size(0)
        values = torch.cat([values, self.more(x)])
        return x + self.out_again(self._heard(weights, values)), values[-kept:]

    def _heard(self, weights: Any, values: Any) -> Any:
        size, rows, _ = values.shape
        found = torch.bmm(weights, values.reshape(size, rows * 2, 2).transpose(0, 1))
        return found.transpose(0, 1).reshape(-1, rows, 4)


class Layer(nn.Module):
    """Mean, attention and two convolutions, with a bypass."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.attend, self.first, self.second = Mean(), Relative(), Gated(), Gated()
        self.ahead = nn.Sequential(nn.Linear(WIDTH, 16), nn.SiLU(), nn.Linear(16, WIDTH))
        self.share = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Any, places: Any, seen: Any, mean: Any, key: Any, value: Any, again: Any, *past: Any) -> Any:
        before = x
        x, seen, mean = self.mean(x + self.ahead(x), seen, mean)
        x, weights, key, value = self.attend(x, places, key, value)
        x, first = self.first(x, past[0])
        x, again = self.attend.again(x, weights, again)
        x, second = self.second(x, past[1])
        x = x * (x.square().mean(-1, keepdim=True) + 0.1).rsqrt()
        return before + (x - before) * self.share, (seen, mean, key, value, again, first, second)


class Stack(nn.Module):
    """Layers at one rate: frames are put together by attention, and repeated behind."""

    table: Tensor

    def __init__(self, layers: int, rate: int) -> None:
        super().__init__()
        self.layers, self.rate = nn.ModuleList(Layer() for _ in range(layers)), rate
        self.register_buffer("table", torch.randn(1, 41, WIDTH))
        self.query, self.bias = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(rate, WIDTH))

    def forward(self, x: Any, states: Any) -> Any:
        whole = x
        frames, rows, width = x.shape
        if self.rate > 1:
            x = x.reshape(frames // self.rate, self.rate, rows, width)
            x = (x * (x * self.query).sum(-1, keepdim=True).softmax(1)).sum(1)
        slow = x.size(0)
        places = self.table[:, 20 - (slow + KEPT // self.rate) + 1 : 20 + slow]
        new = []
        for at, layer in enumerate(self.layers):
            x, found = layer(x, places, *(each[at] for each in states))
            new.append(found)
        if self.rate > 1:
            x = x.unsqueeze(1).expand(slow, self.rate, rows, width) + self.bias.unsqueeze(1)
            x = whole * 0.3 + x.reshape(frames, rows, width) * 0.7
        return x, [torch.stack(each) for each in zip(*new, strict=True)]


class StackedZipformer(nn.Module):
    """Two stacks of two rates, with the states of each stacked over its layers (Zipformer of icefall)."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(Stack(layers, rate) for layers, rate in zip(LAYERS, RATES, strict=True))

    def forward(self, x: Any, states: list[Tensor]) -> Any:
        x, new = x.permute(1, 0, 2), []
        for at, stack in enumerate(self.stacks):
            x, found = stack(x, states[7 * at : 7 * at + 7])
            new += found
        return x.permute(1, 0, 2), new


def _stacked() -> dict[str, Given]:
    shapes: list[tuple[int | str, ...]] = []
    for layers, rate in zip(LAYERS, RATES, strict=True):
        kept = KEPT // rate
        shapes += [(layers, "batch"), (layers, "batch", WIDTH), (layers, kept, "batch", WIDTH)]
        shapes += 2 * [(layers, kept, "batch", 4)]
        shapes += 2 * [(layers, "batch", WIDTH, 4)]
    return {f"states.{at}": state(f"new_{at}", *shape) for at, shape in enumerate(shapes)}


class SelfAttentionWithMemory(nn.Module):
    """A chunk and its look-ahead over what was kept of chunks alone, beside a memory block (SANM of FunASR)."""

    def __init__(self, ahead: int = 2, kept: int = 12) -> None:
        super().__init__()
        self.a, self.memory = Attention(), nn.Conv1d(WIDTH, WIDTH, 5, groups=WIDTH, bias=False)
        self.norm, self.f = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ahead, self.kept = ahead, kept

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        heard = self.norm(x)
        key, value = self.a.k(heard), self.a.v(heard)
        block = value + self.memory(functional.pad(value.transpose(1, 2), (2, 2))).transpose(1, 2)
        k, v = heads(key), heads(value)
        joined = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        keys = torch.cat([keys, k[:, :, : -self.ahead]], 2)[:, :, -self.kept :]
        values = torch.cat([values, v[:, :, : -self.ahead]], 2)[:, :, -self.kept :]
        scores = heads(self.a.q(heard) * 0.5) @ joined[0].transpose(2, 3)
        x = x + self.a.o(merge(scores.softmax(-1) @ joined[1])) + block
        return x + self.f(x).relu(), keys, values


class ParaformerOnline(nn.Module):
    """Frames that overlap chunks, positions that go on, and two such layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(SelfAttentionWithMemory() for _ in range(2))

    def forward(self, x: Any, past: Any, start: Any, caches: list[Tensor]) -> Any:
        at = start.unsqueeze(1) + torch.arange(x.size(1))
        turns = at.unsqueeze(2) * torch.exp(torch.arange(WIDTH // 2) * -2.0)
        x = x * WIDTH**0.5 + torch.cat([turns.sin(), turns.cos()], 2)
        whole = torch.cat([past, x], 1)
        y, new = whole, []
        for at_layer, layer in enumerate(self.layers):
            y, key, value = layer(y, caches[2 * at_layer], caches[2 * at_layer + 1])
            new += [key, value]
        return y[:, :-2], whole[:, -2:], start + x.size(1), new


class RightContext(nn.Module):
    """Frames to come lie in front of those of the segment, and the batch behind all (Emformer of torchaudio)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = Attention(), nn.LayerNorm(WIDTH)

    def forward(self, x: Any, bank: Any, left_k: Any, left_v: Any) -> Any:
        segment, right = x[:4], x[4:]
        summary = segment.mean(0, keepdim=True)
        heard = self.norm(torch.cat([right, segment]))
        key = torch.cat([self.a.k(bank), self.a.k(heard[:2]), left_k, self.a.k(heard[2:])])
        value = torch.cat([self.a.v(bank), self.a.v(heard[:2]), left_v, self.a.v(heard[2:])])
        query = self.a.q(torch.cat([heard, summary]))
        q, k, v = (heads(each.transpose(0, 1)) for each in (query, key, value))
        found = self.a.o(merge(functional.scaled_dot_product_attention(q, k, v))).transpose(0, 1)
        y = found[:-1] + torch.cat([right, segment])
        left_k = torch.cat([left_k, self.a.k(heard[2:])])[-8:]
        left_v = torch.cat([left_v, self.a.v(heard[2:])])[-8:]
        return y[2:], torch.cat([bank, found[-1:].tanh()])[-3:], left_k, left_v


class FlaggedRing(nn.Module):
    """A ring that is written in place, with a flag for every slot that has been."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()

    def forward(self, x: Any, ring: Any, filled: Any, past: Any) -> Any:
        slots = (past.unsqueeze(1) + torch.arange(x.size(1))) % ring.size(1)
        rows = torch.arange(x.size(0)).unsqueeze(1)
        ring, filled = ring.clone(), filled.clone()
        ring[rows, slots] = x
        filled[rows, slots] = True
        y = functional.scaled_dot_product_attention(
            heads(self.a.q(x)), heads(self.a.k(ring)), heads(self.a.v(ring)), attn_mask=filled[:, None, None]
        )
        return self.a.o(merge(y)), ring, filled, past + x.size(1)


class SelectedFlags(FlaggedRing):
    """The same, where the slots of a call are selected, and so are their flags."""

    def forward(self, x: Any, ring: Any, filled: Any, past: Any) -> Any:
        now = torch.arange(ring.size(1)) == (past % ring.size(1)).unsqueeze(1)
        ring = torch.where(now.unsqueeze(2), x, ring)
        filled = torch.where(now, torch.ones_like(filled), filled)
        y = functional.scaled_dot_product_attention(
            heads(self.a.q(x)), heads(self.a.k(ring)), heads(self.a.v(ring)), attn_mask=filled[:, None, None]
        )
        return self.a.o(merge(y)), ring, filled, past + 1


def _ring(frames: int) -> dict[str, Given]:
    return {
        "x": data("batch", frames, 8),
        "ring": state("new_ring", "batch", 8, 8),
        "filled": state("new_filled", "batch", 8, dtype="bool"),
        "past": state("new_past", "batch", dtype="int64"),
    }


FAMILIES = (
    StepFamily(
        "zipformer_stacked",
        StackedZipformer,
        {"x": data("batch", 4, 8), **_stacked()},
        ("y", *(f"new_{at}" for at in range(14))),
    ),
    StepFamily(
        "paraformer_online",
        ParaformerOnline,
        {
            "x": data("batch", 4, 8),
            "past": state("new_past", "batch", 2, 8),
            "start": state("new_start", "batch", dtype="int64"),
            **{f"caches.{at}": state(f"new_{at}", "batch", 2, "cached", 4) for at in range(4)},
        },
        ("y", "new_past", "new_start", *(f"new_{at}" for at in range(4))),
        windows={"cached": 12},
    ),
    StepFamily(
        "emformer_right_context",
        RightContext,
        {
            "x": data(6, "batch", 8),
            "bank": state("new_bank", "bank", "batch", 8),
            "left_k": state("new_k", "left", "batch", 8),
            "left_v": state("new_v", "left", "batch", 8),
        },
        ("y", "new_bank", "new_k", "new_v"),
        windows={"bank": 3, "left": 8},
    ),
    StepFamily("ring_with_flags", FlaggedRing, _ring(2), ("y", "new_ring", "new_filled", "new_past")),
    StepFamily("ring_selected_flags", SelectedFlags, _ring(1), ("y", "new_ring", "new_filled", "new_past")),
)
