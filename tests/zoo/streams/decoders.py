"""Decoders, predictors and their caches."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.attention import HEADS, WIDTH, Attention, heads, merge, rope
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


class KvStacked(KvTuple):
    """Keys and values of all layers in one tensor."""

    def forward(self, x: Any, past: Any) -> Any:
        new = []
        for i, layer in enumerate(self.layers):
            k = torch.cat([past[i, 0], heads(layer.k(x))], 2)
            v = torch.cat([past[i, 1], heads(layer.v(x))], 2)
            new.append(torch.stack([k, v]))
            x = x + layer.o(merge(functional.scaled_dot_product_attention(heads(layer.q(x)), k, v)))
        return (x, torch.stack(new))


class StaticCache(nn.Module):
    """Keys and values scattered to their position in caches of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()

    def forward(self, x: Any, ck: Any, cv: Any, pos: Any) -> Any:
        idx = (pos.unsqueeze(1) + torch.arange(x.size(1))) % 32
        at = idx[:, None, :, None].expand(-1, HEADS, -1, WIDTH // HEADS)
        ck = ck.scatter(2, at, heads(self.a.k(x)))
        cv = cv.scatter(2, at, heads(self.a.v(x)))
        ok = torch.arange(32)[None, None, :] <= idx[:, :, None]
        ok = ok | (pos[:, None, None] >= 32)
        y = functional.scaled_dot_product_attention(heads(self.a.q(x)), ck, cv, attn_mask=ok[:, None])
        return (self.a.o(merge(y)), ck, cv, pos + x.size(1))


class IndexPut(nn.Module):
    """A ring written by index."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()

    def forward(self, x: Any, c: Any, pos: Any) -> Any:
        b = torch.arange(x.size(0))
        c = c.clone()
        c[b, pos % 16] = x[:, 0]
        ok = torch.arange(16)[None] <= pos[:, None]
        y = functional.scaled_dot_product_attention(
            heads(self.a.q(x)), heads(self.a.k(c)), heads(self.a.v(c)), attn_mask=ok[:, None, None]
        )
        return (self.a.o(merge(y)), c, pos + 1)


class RowSliceAssign(nn.Module):
    """Of one row, written to by index_copy at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()

    def forward(self, x: Any, c: Any, pos: Any) -> Any:
        c = c.index_copy(1, pos, x)
        ok = torch.arange(128) <= pos
        y = functional.scaled_dot_product_attention(
            heads(self.a.q(x)), heads(self.a.k(c)), heads(self.a.v(c)), attn_mask=ok[None, None, None]
        )
        return (self.a.o(merge(y)), c, pos + 1)


class Cross(nn.Module):
    """Its own cache, and constant keys and values of an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = (Attention(), Attention())
        self.e = nn.Embedding(20, WIDTH)

    def forward(self, token: Any, k: Any, v: Any, ck: Any, cv: Any) -> Any:
        x = self.e(token)
        k = torch.cat([k, heads(self.a.k(x))], 2)
        v = torch.cat([v, heads(self.a.v(x))], 2)
        x = x + self.a.o(merge(functional.scaled_dot_product_attention(heads(self.a.q(x)), k, v)))
        x = x + self.c.o(merge(functional.scaled_dot_product_attention(heads(self.c.q(x)), ck, cv)))
        return (x, k, v)


class Gqa(nn.Module):
    """Two groups of queries share keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (
            nn.Linear(WIDTH, 16),
            nn.Linear(WIDTH, 4),
            nn.Linear(WIDTH, 4),
            nn.Linear(16, WIDTH),
        )

    def forward(self, x: Any, k: Any, v: Any) -> Any:
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        k = torch.cat([k, self.k(x).view(b, t, 1, 4).transpose(1, 2)], 2)
        v = torch.cat([v, self.v(x).view(b, t, 1, 4).transpose(1, 2)], 2)
        kk = k[:, :, None].expand(-1, -1, 4, -1, -1).reshape(b, 4, -1, 4)
        vv = v[:, :, None].expand(-1, -1, 4, -1, -1).reshape(b, 4, -1, 4)
        return (self.o(functional.scaled_dot_product_attention(q, kk, vv).transpose(1, 2).reshape(b, t, 16)), k, v)


class Alibi(nn.Module):
    """Biases that fall with the distance."""

    slope: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()
        self.register_buffer("slope", torch.tensor([0.5, 0.25]).view(1, 2, 1, 1))

    def forward(self, x: Any, k: Any, v: Any) -> Any:
        k = torch.cat([k, heads(self.a.k(x))], 2)
        v = torch.cat([v, heads(self.a.v(x))], 2)
        frames, n = (x.size(1), k.size(2))
        dist = (torch.arange(n)[None, :] - torch.arange(n - frames, n)[:, None]).float()
        bias = self.slope * -dist.abs()
        causal = torch.where(dist <= 0, 0.0, float("-inf"))
        return (
            self.a.o(merge(functional.scaled_dot_product_attention(heads(self.a.q(x)), k, v, attn_mask=bias + causal))),
            k,
            v,
        )


class Rope(nn.Module):
    """Keys are turned before they are cached."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()

    def forward(self, x: Any, position: Any, k: Any, v: Any) -> Any:
        p = position[:, None].float()
        k = torch.cat([k, rope(heads(self.a.k(x)), p)], 2)
        v = torch.cat([v, heads(self.a.v(x))], 2)
        return (self.a.o(merge(functional.scaled_dot_product_attention(rope(heads(self.a.q(x)), p), k, v))), k, v)


class RopeLate(Rope):
    """Keys are turned at their place in the window."""

    def forward(self, x: Any, k: Any, v: Any) -> Any:  # type: ignore[override]
        k = torch.cat([k, heads(self.a.k(x))], 2)
        v = torch.cat([v, heads(self.a.v(x))], 2)
        n, t = (k.size(2), x.size(1))
        pos = torch.arange(n).float()
        return (
            self.a.o(
                merge(functional.scaled_dot_product_attention(rope(heads(self.a.q(x)), pos[n - t :]), rope(k, pos), v))
            ),
            k,
            v,
        )


class Mla(nn.Module):
    """One latent cache for keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Linear(WIDTH, 3)
        self.k, self.v, self.q, self.o = (
            nn.Linear(3, WIDTH),
            nn.Linear(3, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x: Any, c: Any) -> Any:
        c = torch.cat([c, self.d(x)], 1)
        return (
            self.o(
                merge(functional.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(c)), heads(self.v(c))))
            ),
            c,
        )


class Shared(nn.Module):
    """Two layers read the same keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (Attention(), Attention())

    def forward(self, x: Any, k: Any, v: Any) -> Any:
        k = torch.cat([k, heads(self.a.k(x))], 2)
        v = torch.cat([v, heads(self.a.v(x))], 2)
        for layer in (self.a, self.b):
            x = x + layer.o(merge(functional.scaled_dot_product_attention(heads(layer.q(x)), k, v)))
        return (x, k, v)


class Gpt2(nn.Module):
    """Learned positions that the caller counts."""

    def __init__(self) -> None:
        super().__init__()
        self.t, self.p = (nn.Embedding(30, WIDTH), nn.Embedding(256, WIDTH))
        self.a = Attention()
        self.n = nn.LayerNorm(WIDTH)
        self.o = nn.Linear(WIDTH, 30)

    def forward(self, token: Any, position: Any, k: Any, v: Any) -> Any:
        x = self.t(token) + self.p(position)
        h = self.n(x)
        k = torch.cat([k, heads(self.a.k(h))], 2)
        v = torch.cat([v, heads(self.a.v(h))], 2)
        return (self.o(x + self.a.o(merge(functional.scaled_dot_product_attention(heads(self.a.q(h)), k, v)))), k, v)


class Predictor(nn.Module):
    """An LSTM over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.r = nn.LSTM(8, 8, 1, batch_first=True)

    def forward(self, token: Any, h: Any, c: Any) -> Any:
        y, (h, c) = self.r(self.e(token), (h, c))
        return (y, h, c)


class Stateless(nn.Module):
    """A convolution over the last two tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.c = nn.Conv1d(8, 8, 2, groups=4)

    def forward(self, token: Any, context: Any) -> Any:
        t = torch.cat([context, token], 1)
        return (torch.relu(self.c(self.e(t).transpose(1, 2))).transpose(1, 2), t[:, 1:])


class BlankPredictor(nn.Module):
    """Two tokens behind each other, of which blanks of -1 are looked up as 0 and count for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.c = nn.Conv1d(8, 8, 2, groups=4, bias=False)

    def forward(self, token: Any, context: Any) -> Any:
        t = torch.cat([context, token], 1)
        x = self.e(t.clamp(min=0)) * (t >= 0).unsqueeze(2)
        return (torch.relu(self.c(x.transpose(1, 2))).transpose(1, 2), t[:, 1:])


class Codebooks(nn.Module):
    """One table for all codebooks, each at an offset of its own; a code of -1 is to come yet and counts for nothing.

    The first codebook is a step ahead of the others, whose codes wait in a state.
    """

    offset: Tensor

    def __init__(self, books: Any = 3, codes: Any = 10) -> None:
        super().__init__()
        self.e = nn.Embedding(books * codes, WIDTH)
        self.a = Attention()
        self.n = nn.LayerNorm(WIDTH)
        self.o = nn.Linear(WIDTH, books * codes)
        self.register_buffer("offset", torch.arange(books)[:, None] * codes)

    def forward(self, code: Any, late: Any, k: Any, v: Any) -> Any:
        delayed = torch.cat([code[:, :1], late], 1)
        x = self.e(torch.where(delayed < 0, 0, delayed) + self.offset) * (delayed >= 0).unsqueeze(3)
        x = x.sum(1)
        h = self.n(x)
        k = torch.cat([k, heads(self.a.k(h))], 2)
        v = torch.cat([v, heads(self.a.v(h))], 2)
        x = x + self.a.o(merge(functional.scaled_dot_product_attention(heads(self.a.q(h)), k, v)))
        return (self.o(x).unflatten(2, (3, 10)), code[:, 1:], k, v)


class SlowFast(nn.Module):
    """A slow transformer over frames of summed codes, and a fast one over the codebooks of each frame."""

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.text, self.codes, self.fast = nn.Embedding(30, WIDTH), nn.Embedding(40, WIDTH), nn.Embedding(10, WIDTH)
        self.a, self.b = Attention(), Attention()
        self.o = nn.Linear(WIDTH, 10)
        self.register_buffer("offset", torch.arange(4)[:, None] * 10)

    def forward(self, token: Any, code: Any, k: Any, v: Any) -> Any:
        is_code = (token >= 20) & (token < 30)
        x = self.text(token) + self.codes(code + self.offset).sum(1) * is_code.unsqueeze(2)
        k = torch.cat([k, heads(self.a.k(x))], 2)
        v = torch.cat([v, heads(self.a.v(x))], 2)
        x = x + self.a.o(merge(functional.scaled_dot_product_attention(heads(self.a.q(x)), k, v)))
        f = torch.cat([x, self.fast(code[:, :, 0])], 1)
        seen = torch.ones(5, 5, dtype=torch.bool).tril()
        q, own, value = heads(self.b.q(f)), heads(self.b.k(f)), heads(self.b.v(f))
        f = f + self.b.o(merge(functional.scaled_dot_product_attention(q, own, value, attn_mask=seen)))
        return (self.o(f), k, v)


FAMILIES = (
    StepFamily(
        "transducer_blank",
        BlankPredictor,
        {
            "token": data("batch", 1, dtype="int64", above=-1, below=20),
            "context": state("cn", "batch", 1, dtype="int64"),
        },
        ("y", "cn"),
    ),
    StepFamily(
        "codebooks_delayed",
        Codebooks,
        {
            "code": data("batch", 3, 1, dtype="int64", above=-1, below=10),
            "late": state("next_late", "batch", 2, 1, dtype="int64"),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
        },
        ("y", "next_late", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "slow_fast",
        SlowFast,
        {
            "token": data("batch", 1, dtype="int64", below=30),
            "code": data("batch", 4, 1, dtype="int64", below=10),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "decoder_kv_tuple",
        KvTuple,
        {
            "x": data("batch", 1, 8),
            "past.0.0": state("new00", "batch", 2, "cached", 4),
            "past.0.1": state("new01", "batch", 2, "cached", 4),
            "past.1.0": state("new10", "batch", 2, "cached", 4),
            "past.1.1": state("new11", "batch", 2, "cached", 4),
        },
        ("y", "new00", "new01", "new10", "new11"),
        windows={"cached": 16},
    ),
    StepFamily(
        "decoder_kv_stacked",
        KvStacked,
        {"x": data("batch", 1, 8), "past": state("new", 2, 2, "batch", 2, "cached", 4)},
        ("y", "new"),
        windows={"cached": 16},
    ),
    StepFamily(
        "static_cache_scatter",
        StaticCache,
        {
            "x": data("batch", 1, 8),
            "ck": state("ckn", "batch", 2, 32, 4),
            "cv": state("cvn", "batch", 2, 32, 4),
            "pos": state("pn", "batch", dtype="int64"),
        },
        ("y", "ckn", "cvn", "pn"),
    ),
    StepFamily(
        "ring_index_put",
        IndexPut,
        {"x": data("batch", 1, 8), "c": state("cn", "batch", 16, 8), "pos": state("pn", "batch", dtype="int64")},
        ("y", "cn", "pn"),
    ),
    StepFamily(
        "row_index_copy",
        RowSliceAssign,
        {
            "x": data("batch", 1, 8, original=(1, 1, 8)),
            "c": state("cn", "batch", 128, 8, original=(1, 128, 8)),
            "pos": state("pn", "batch", 1, dtype="int64", original=(1,)),
        },
        ("y", "cn", "pn"),
    ),
    StepFamily(
        "decoder_cross_cache",
        Cross,
        {
            "token": data("batch", 1, dtype="int64", below=20),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
            "ck": data("batch", 2, 9, 4),
            "cv": data("batch", 2, 9, 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "decoder_gqa",
        Gqa,
        {
            "x": data("batch", 1, 8),
            "k": state("kn", "batch", 1, "cached", 4),
            "v": state("vn", "batch", 1, "cached", 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "decoder_alibi",
        Alibi,
        {
            "x": data("batch", 3, 8),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 15},
    ),
    StepFamily(
        "decoder_rope",
        Rope,
        {
            "x": data("batch", 1, 8),
            "position": data("batch", 1, dtype="int64", counts=True),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "rope_window",
        RopeLate,
        {
            "x": data("batch", 2, 8),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "decoder_latent_cache",
        Mla,
        {"x": data("batch", 1, 8), "c": state("cn", "batch", "cached", 3)},
        ("y", "cn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "decoder_shared_kv",
        Shared,
        {
            "x": data("batch", 1, 8),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "decoder_learned_positions",
        Gpt2,
        {
            "token": data("batch", 1, dtype="int64", below=30),
            "position": data("batch", 1, dtype="int64", counts=True),
            "k": state("kn", "batch", 2, "cached", 4),
            "v": state("vn", "batch", 2, "cached", 4),
        },
        ("y", "kn", "vn"),
        windows={"cached": 16},
    ),
    StepFamily(
        "transducer_predictor",
        Predictor,
        {
            "token": data("batch", 1, dtype="int64", below=20),
            "h": state("hn", 1, "batch", 8),
            "c": state("cn", 1, "batch", 8),
        },
        ("y", "hn", "cn"),
    ),
    StepFamily(
        "transducer_stateless",
        Stateless,
        {"token": data("batch", 1, dtype="int64", below=20), "context": state("cn", "batch", 1, dtype="int64")},
        ("y", "cn"),
    ),
)
