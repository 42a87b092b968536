"""Encoders with attention over what they have heard."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.attention import HEADS, WIDTH, Attention, heads, merge
from tests.zoo.streams.family import StepFamily, data, state


class KvTuple(nn.Module):
    """Keys and values as pairs per layer."""

    def __init__(self, n: Any = 2) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(Attention() for _ in range(n))

    def forward(self, x: Any, past: Any) -> Any:
        new = []
        for layer, (k, v) in zip(self.layers, past, strict=True):
            k = torch.cat([k, heads(layer.k(x))], 2)
            v = torch.cat([v, heads(layer.v(x))], 2)
            new.append((k, v))
            x = x + layer.o(merge(functional.scaled_dot_product_attention(heads(layer.q(x)), k, v)))
        return (x, tuple(new))


class KvRow(KvTuple):
    """Of one row, keys beside values, all layers in one tensor, cut to the newest."""

    def forward(self, x: Any, cache: Any) -> Any:
        x = x.unsqueeze(0)
        new = []
        for i, layer in enumerate(self.layers):
            ck, cv = cache[i : i + 1].chunk(2, -1)
            k = torch.cat([ck, heads(layer.k(x))], 2)
            v = torch.cat([cv, heads(layer.v(x))], 2)
            new.append(torch.cat([k, v], -1)[:, :, -16:])
            x = x + layer.o(merge(functional.scaled_dot_product_attention(heads(layer.q(x)), k, v)))
        return (x.squeeze(0), torch.cat(new))


class CutBefore(KvTuple):
    """Inputs of all layers in one tensor, cut from max(n - 12, 0) on."""

    def forward(self, x: Any, past: Any) -> Any:
        new = []
        for i, layer in enumerate(self.layers):
            j = torch.cat([past[i], x], 1)
            new.append(j[:, max(j.size(1) - 12, 0) :])
            x = x + layer.o(
                merge(functional.scaled_dot_product_attention(heads(layer.q(x)), heads(layer.k(j)), heads(layer.v(j))))
            )
        return (x, torch.stack(new))


class TimeFirst(nn.Module):
    """nn.MultiheadAttention, frames in front of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.MultiheadAttention(WIDTH, HEADS)

    def forward(self, x: Any, left: Any) -> Any:
        j = torch.cat([left, x], 0)
        y, _ = self.a(x, j, j, need_weights=False)
        return (y, j[-12:])


class FixedMask(nn.Module):
    """A cache of one size with the model's own length (as NeMo's)."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()

    def forward(self, x: Any, cache: Any, length: Any) -> Any:
        j = torch.cat([cache, x], 1)
        frames, slots = (x.size(1), cache.size(1))
        ok = torch.arange(slots + frames).unsqueeze(0) >= (slots - length).unsqueeze(1)
        y = functional.scaled_dot_product_attention(
            heads(self.a.q(x)), heads(self.a.k(j)), heads(self.a.v(j)), attn_mask=ok[:, None, None, :]
        )
        return (self.a.o(merge(y)), j[:, frames:], torch.clamp(length + frames, max=slots))


class Causal(nn.Module):
    """A causal mask inside the chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()

    def forward(self, x: Any, c: Any) -> Any:
        j = torch.cat([c, x], 1)
        t, n = (x.size(1), j.size(1))
        m = torch.ones(t, n, dtype=torch.bool).tril(n - t)
        return (
            self.a.o(
                merge(
                    functional.scaled_dot_product_attention(
                        heads(self.a.q(x)), heads(self.a.k(j)), heads(self.a.v(j)), attn_mask=m
                    )
                )
            ),
            j,
        )


class DropFirst(Causal):
    """A context that is always full."""

    def forward(self, x: Any, c: Any) -> Any:
        j = torch.cat([c[:, x.size(1) :], x], 1)
        return (
            self.a.o(
                merge(
                    functional.scaled_dot_product_attention(heads(self.a.q(x)), heads(self.a.k(j)), heads(self.a.v(j)))
                )
            ),
            j,
        )


class Window(Causal):
    """A band of keys inside the window."""

    def forward(self, x: Any, c: Any) -> Any:
        j = torch.cat([c, x], 1)
        t, n = (x.size(1), j.size(1))
        qi = torch.arange(n - t, n)[:, None]
        ki = torch.arange(n)[None]
        m = (ki <= qi) & (ki > qi - 10)
        return (
            self.a.o(
                merge(
                    functional.scaled_dot_product_attention(
                        heads(self.a.q(x)), heads(self.a.k(j)), heads(self.a.v(j)), attn_mask=m
                    )
                )
            ),
            j[:, -12:],
        )


class Relative(nn.Module):
    """Relative positions by the shift of Transformer-XL."""

    pe: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()
        self.p = nn.Linear(WIDTH, WIDTH, bias=False)
        self.u = nn.Parameter(torch.randn(HEADS, 1, 4))
        self.register_buffer("pe", torch.randn(1, 201, WIDTH))

    def forward(self, x: Any, mem: Any) -> Any:
        j = torch.cat([mem, x], 1)
        n, t = (j.size(1), x.size(1))
        q = heads(self.a.q(x))
        k = heads(self.a.k(j))
        v = heads(self.a.v(j))
        pos = self.pe[:, 100 - n + 1 : 100 + t]
        r = heads(self.p(pos))
        bd = (q + self.u) @ r.transpose(-1, -2)
        b, h, t1, places = bd.shape
        bd = functional.pad(bd, (1, 0)).view(b, h, places + 1, t1)[:, :, 1:].view(b, h, t1, places)[:, :, :, :n]
        return (self.a.o(merge(torch.softmax((q @ k.transpose(-1, -2) + bd) / 2, -1) @ v)), j)


class Emformer(nn.Module):
    """Memory bank, left context and frames to come (Shi et al., 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()
        self.f = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any, memory: Any, left_k: Any, left_v: Any) -> Any:
        center = x[:, :4]
        summary = center.mean(1, keepdim=True)
        k = torch.cat([self.a.k(memory), left_k, self.a.k(x)], 1)
        v = torch.cat([self.a.v(memory), left_v, self.a.v(x)], 1)
        q = torch.cat([x, summary], 1)
        y = self.a.o(merge(functional.scaled_dot_product_attention(heads(self.a.q(q)), heads(k), heads(v))))
        new_memory = torch.tanh(y[:, -1:])
        y = x + y[:, :-1]
        y = y + self.f(y)
        return (
            y[:, :4],
            torch.cat([memory, new_memory], 1)[:, -3:],
            torch.cat([left_k, self.a.k(center)], 1)[:, -8:],
            torch.cat([left_v, self.a.v(center)], 1)[:, -8:],
        )


class EmformerFixed(Emformer):
    """The same with states of one size and a count of frames (as in torchaudio)."""

    def forward(self, x: Any, memory: Any, left_k: Any, left_v: Any, past: Any) -> Any:  # type: ignore[override]
        ok_m = torch.arange(3)[None] >= 3 - torch.clamp(torch.div(past + 3, 4, rounding_mode="floor"), max=3)
        ok_l = torch.arange(8)[None] >= 8 - torch.clamp(past, max=8)
        center = x[:, :4]
        summary = center.mean(1, keepdim=True)
        k = torch.cat([self.a.k(memory), left_k, self.a.k(x)], 1)
        v = torch.cat([self.a.v(memory), left_v, self.a.v(x)], 1)
        ok = torch.cat([ok_m, ok_l, torch.ones_like(x[:, :, 0]) > 0], 1)[:, None, None]
        q = torch.cat([x, summary], 1)
        y = self.a.o(
            merge(functional.scaled_dot_product_attention(heads(self.a.q(q)), heads(k), heads(v), attn_mask=ok))
        )
        new_memory = torch.tanh(y[:, -1:])
        y = x + y[:, :-1]
        y = y + self.f(y)
        return (
            y[:, :4],
            torch.cat([memory, new_memory], 1)[:, -3:],
            torch.cat([left_k, self.a.k(center)], 1)[:, -8:],
            torch.cat([left_v, self.a.v(center)], 1)[:, -8:],
            past + 4,
        )


class Zipformer(nn.Module):
    """Two frame rates, with a cache each."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (Attention(), Attention())
        self.w = nn.Parameter(torch.tensor([0.6, 0.4]))
        self.conv = nn.Conv1d(8, 8, 5, groups=8)

    def att(self, layer: Any, x: Any, c: Any) -> Any:
        j = torch.cat([c, x], 1)
        return (
            x
            + layer.o(
                merge(functional.scaled_dot_product_attention(heads(layer.q(x)), heads(layer.k(j)), heads(layer.v(j))))
            ),
            j,
        )

    def forward(self, x: Any, fast: Any, slow: Any, conv: Any) -> Any:
        x, fast = self.att(self.a, x, fast)
        d = (x.view(x.size(0), -1, 2, WIDTH) * self.w[:, None]).sum(2)
        d, slow = self.att(self.b, d, slow)
        x = x + d.repeat_interleave(2, 1)
        j = torch.cat([conv, x.transpose(1, 2)], 2)
        return (x + self.conv(j).transpose(1, 2), fast[:, -16:], slow[:, -8:], j[:, :, -4:])


class TwoPass(nn.Module):
    """A recurrence, and attention over what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.r = nn.GRU(8, 8, batch_first=True)
        self.a = Attention()
        self.o1, self.o2 = (nn.Linear(8, 5), nn.Linear(8, 5))

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, h = self.r(x, h)
        j = torch.cat([c, y], 1)
        z = self.a.o(
            merge(functional.scaled_dot_product_attention(heads(self.a.q(y)), heads(self.a.k(j)), heads(self.a.v(j))))
        )
        return (self.o1(y), self.o2(z), h, j[:, -12:])


class Branchformer(nn.Module):
    """Attention beside a gated convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()
        self.u = nn.Linear(WIDTH, 16)
        self.n = nn.LayerNorm(8)
        self.c = nn.Conv1d(8, 8, 7, groups=8)
        self.d = nn.Linear(8, WIDTH)
        self.m = nn.Linear(16, WIDTH)

    def forward(self, x: Any, att: Any, cnn: Any) -> Any:
        j = torch.cat([att, x], 1)
        y = self.a.o(
            merge(functional.scaled_dot_product_attention(heads(self.a.q(x)), heads(self.a.k(j)), heads(self.a.v(j))))
        )
        r, g = functional.gelu(self.u(x)).chunk(2, -1)
        k = torch.cat([cnn, self.n(g).transpose(1, 2)], 2)
        z = self.d(r * self.c(k).transpose(1, 2))
        return (x + self.m(torch.cat([y, z], -1)), j[:, -12:], k[:, :, -6:])


class ContextBlock(nn.Module):
    """A context vector per layer is handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, x: Any, ctx: Any) -> Any:
        new = []
        c = x.mean(1, keepdim=True)
        for i, layer in enumerate(self.layers):
            j = torch.cat([ctx[:, i : i + 1], x, c], 1)
            j = j + layer.o(
                merge(functional.scaled_dot_product_attention(heads(layer.q(j)), heads(layer.k(j)), heads(layer.v(j))))
            )
            x, c = (j[:, 1:-1], j[:, -1:])
            new.append(c)
        return (x, torch.cat(new, 1))


FAMILIES = (
    StepFamily(
        "wenet_like_row",
        KvRow,
        {
            "x": data("batch", 4, 8, original=(4, 8)),
            "cache": state("new", "batch", 2, 2, "cached", 8, original=(2, 2, "cached", 8)),
        },
        ("y", "new"),
        windows={"cached": 16},
    ),
    StepFamily(
        "conformer_layer_inputs",
        CutBefore,
        {"x": data("batch", 4, 8), "past": state("new", 2, "batch", "cached", 8)},
        ("y", "new"),
        windows={"cached": 12},
    ),
    StepFamily(
        "time_first_cache",
        TimeFirst,
        {"x": data(4, "batch", 8), "left": state("leftn", "cached", "batch", 8)},
        ("y", "leftn"),
        windows={"cached": 12},
    ),
    StepFamily(
        "nemo_fixed_cache_length",
        FixedMask,
        {"x": data("batch", 4, 8), "cache": state("cn", "batch", 12, 8), "length": state("ln", "batch", dtype="int64")},
        ("y", "cn", "ln"),
    ),
    StepFamily(
        "full_fixed_context", DropFirst, {"x": data("batch", 4, 8), "c": state("cn", "batch", 16, 8)}, ("y", "cn")
    ),
    StepFamily(
        "causal_chunk",
        Causal,
        {"x": data("batch", 4, 8), "c": state("cn", "batch", "cached", 8)},
        ("y", "cn"),
        windows={"cached": 12},
    ),
    StepFamily(
        "sliding_window_mask",
        Window,
        {"x": data("batch", 4, 8), "c": state("cn", "batch", "cached", 8)},
        ("y", "cn"),
        windows={"cached": 12},
    ),
    StepFamily(
        "transformer_xl_shift",
        Relative,
        {"x": data("batch", 4, 8), "mem": state("memn", "batch", "cached", 8)},
        ("y", "memn"),
        windows={"cached": 12},
    ),
    StepFamily(
        "emformer",
        Emformer,
        {
            "x": data("batch", 6, 8),
            "memory": state("mn", "batch", "bank", 8),
            "left_k": state("kn", "batch", "cached", 8),
            "left_v": state("vn", "batch", "cached", 8),
        },
        ("y", "mn", "kn", "vn"),
        windows={"cached": 8, "bank": 3},
    ),
    StepFamily(
        "emformer_fixed",
        EmformerFixed,
        {
            "x": data("batch", 6, 8),
            "memory": state("mn", "batch", 3, 8),
            "left_k": state("kn", "batch", 8, 8),
            "left_v": state("vn", "batch", 8, 8),
            "past": state("pn", "batch", 1, dtype="int64"),
        },
        ("y", "mn", "kn", "vn", "pn"),
    ),
    StepFamily(
        "zipformer_two_rates",
        Zipformer,
        {
            "x": data("batch", 4, 8),
            "fast": state("fn", "batch", "cached", 8),
            "slow": state("sn", "batch", "half", 8),
            "conv": state("cn", "batch", 8, 4),
        },
        ("y", "fn", "sn", "cn"),
        windows={"cached": 16, "half": 8},
    ),
    StepFamily(
        "two_pass",
        TwoPass,
        {"x": data("batch", 4, 8), "h": state("hn", 1, "batch", 8), "c": state("cn", "batch", "cached", 8)},
        ("first", "second", "hn", "cn"),
        windows={"cached": 12},
    ),
    StepFamily(
        "branchformer",
        Branchformer,
        {"x": data("batch", 4, 8), "att": state("attn", "batch", "cached", 8), "cnn": state("cnnn", "batch", 8, 6)},
        ("y", "attn", "cnnn"),
        windows={"cached": 12},
    ),
    StepFamily(
        "contextual_block", ContextBlock, {"x": data("batch", 4, 8), "ctx": state("cn", "batch", 2, 8)}, ("y", "cn")
    ),
)
