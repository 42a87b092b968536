"""Encoders, state spaces, predictors and decoders, as a paper's reader writes them."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.family import StepFamily, data, state


class EBranchformer(nn.Module):
    """Attention beside a gated convolution, merged by a depthwise one (Kim et al., 2022); keys and values in one."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(12)
        self.up, self.down = nn.Linear(8, 24), nn.Linear(12, 8)
        self.csgu = nn.Conv1d(12, 12, 5, groups=12)
        self.fuse, self.merge = nn.Conv1d(16, 16, 3, groups=16), nn.Linear(16, 8)

    def forward(self, x: Any, kv: Any, gate: Any, fused: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        kv = torch.cat([kv, torch.stack([k, v], 1)], 3)
        weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, kv[:, 0]) / 2, -1)
        att = self.out(torch.einsum("bhqk,bhkd->bqhd", weights, kv[:, 1]).reshape(b, t, 8))
        one, two = functional.gelu(self.up(self.norm2(x))).chunk(2, -1)
        gate = torch.cat([gate, self.norm3(two).transpose(1, 2)], 2)
        local = self.down(one * self.csgu(gate).transpose(1, 2))
        both = torch.cat([att, local], -1)
        fused = torch.cat([fused, both.transpose(1, 2)], 2)
        y = x + self.merge(both + self.fuse(fused).transpose(1, 2))
        return y, kv[:, :, :, -12:], gate[:, :, -4:], fused[:, :, -2:]


class Squeezeformer(nn.Module):
    """Attention at half the rate with Shaw's relative positions, brought back by repeating (Kim et al., 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce = nn.Conv1d(8, 8, 3, stride=2, groups=8)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.places_k, self.places_v = nn.Embedding(17, 4), nn.Embedding(17, 4)

    def forward(self, x: Any, conv: Any, keys: Any, values: Any) -> Any:
        b = x.size(0)
        joined = torch.cat([conv, x], 1)
        z = self.reduce(joined.transpose(1, 2)).transpose(1, 2)
        t = z.size(1)
        keys = torch.cat([keys, self.k(z)], 1)
        values = torch.cat([values, self.v(z)], 1)
        n = keys.size(1)
        q = self.q(z).view(b, t, 2, 4).transpose(1, 2)
        k = keys.view(b, n, 2, 4).transpose(1, 2)
        v = values.view(b, n, 2, 4).transpose(1, 2)
        distance = torch.arange(n)[None, :] - torch.arange(n - t, n)[:, None]
        places = distance.clamp(-8, 8) + 8
        scores = q @ k.transpose(-2, -1) + torch.einsum("bhqd,qkd->bhqk", q, self.places_k(places))
        weights = torch.softmax(scores / 2, -1)
        y = weights @ v + torch.einsum("bhqk,qkd->bhqd", weights, self.places_v(places))
        y = self.o(y.transpose(1, 2).reshape(b, t, 8))
        return x + y.repeat_interleave(2, 1), joined[:, -1:], keys[:, -10:], values[:, -10:]


class Shaw(nn.Module):
    """Relative positions of keys alone, frames of one row (Shaw et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.table = nn.Parameter(torch.randn(33, 4))

    def forward(self, x: Any, past: Any) -> Any:
        all_frames = torch.cat([past, x], 0)
        t, n = x.size(0), all_frames.size(0)
        q = self.q(x).view(t, 2, 4)
        k = self.k(all_frames).view(n, 2, 4)
        v = self.v(all_frames).view(n, 2, 4)
        places = torch.arange(n - t, n)[:, None] - torch.arange(n)[None]
        rows = self.table[places.clamp(-16, 16) + 16]
        scores = torch.einsum("thd,nhd->htn", q, k) + torch.einsum("thd,tnd->htn", q, rows)
        y = torch.einsum("htn,nhd->thd", (scores / 2).softmax(-1), v)
        return self.o(y.reshape(t, 8)), all_frames[-12:]


class GatedLinear(nn.Module):
    """Gated linear attention, a chunk of frames in the recurrent form (Yang et al., 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        self.decay = nn.Sequential(nn.Linear(8, 3, bias=False), nn.Linear(3, 8))
        self.gate, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.RMSNorm(4)

    def forward(self, x: Any, memory: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = (each.view(b, t, 2, 4) for each in self.qkv(x).split(8, -1))
        alpha = torch.exp(functional.logsigmoid(self.decay(x)) / 16).view(b, t, 2, 4)
        out = []
        for i in range(t):
            memory = memory * alpha[:, i].unsqueeze(-1) + k[:, i].unsqueeze(-1) * v[:, i].unsqueeze(-2)
            out.append(torch.einsum("bhk,bhkv->bhv", q[:, i] / 2, memory))
        y = self.norm(torch.stack(out, 1)).flatten(2)
        return self.out(y * functional.silu(self.gate(x))), memory


class HThree(nn.Module):
    """A shift and a diagonal state space around a product (Fu et al., 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.taps = nn.Parameter(torch.randn(8, 4))
        self.log_rate = nn.Parameter(torch.rand(8, 3))
        self.angle = nn.Parameter(torch.rand(8, 3))
        self.c = nn.Parameter(torch.randn(8, 3, 2))

    def forward(self, x: Any, shift: Any, real: Any, imag: Any) -> Any:
        q, k, v = self.q(x), self.k(x), self.v(x)
        rate = torch.exp(-torch.exp(self.log_rate))
        re, im = rate * torch.cos(self.angle), rate * torch.sin(self.angle)
        out = []
        for i in range(x.size(1)):
            shift = torch.roll(shift, 1, -1)
            shift = torch.cat([k[:, i, :, None], shift[..., 1:]], -1)
            u = (shift * self.taps).sum(-1) * v[:, i]
            real, imag = re * real - im * imag + u[..., None], re * imag + im * real
            y = 2 * (self.c[..., 0] * real - self.c[..., 1] * imag).sum(-1)
            out.append(q[:, i] * y)
        return self.o(torch.stack(out, 1)), shift, real, imag


class MinGru(nn.Module):
    """A recurrence without products of states, by sums of logarithms (Feng et al., 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.z, self.h = nn.Linear(6, 8), nn.Linear(6, 8)

    def forward(self, x: Any, h: Any) -> Any:
        k = self.z(x)
        log_z, log_keep = -functional.softplus(-k), -functional.softplus(k)
        value = self.h(x)
        log_value = torch.where(value >= 0, (functional.relu(value) + 0.5).log(), -functional.softplus(-value))
        log_values = torch.cat([h.log(), log_z + log_value], 1)
        a = functional.pad(torch.cumsum(log_keep, 1), (0, 0, 1, 0))
        y = torch.exp(a + torch.logcumsumexp(log_values - a, 1))[:, 1:]
        return y, y[:, -1:]


class Cif(nn.Module):
    """Integrate and fire: a weight per frame, a token where the sum passes one (Dong, Xu, 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.weight = nn.Conv1d(8, 8, 3), nn.Linear(8, 1)

    def forward(self, x: Any, context: Any, total: Any, token: Any) -> Any:
        joined = torch.cat([context, x], 1)
        h = torch.relu(self.conv(joined.transpose(1, 2)).transpose(1, 2))
        alpha = torch.sigmoid(self.weight(h)).squeeze(-1)
        fired, tokens = [], []
        for i in range(x.size(1)):
            a = alpha[:, i]
            fire = total + a >= 1.0
            used = torch.where(fire, 1.0 - total, a)
            token = token + used[:, None] * x[:, i]
            tokens.append(torch.where(fire[:, None], token, torch.zeros_like(token)))
            fired.append(fire)
            rest = a - used
            token = torch.where(fire[:, None], rest[:, None] * x[:, i], token)
            total = torch.where(fire, rest, total + a)
        return torch.stack(tokens, 1), torch.stack(fired, 1), joined[:, -2:], total, token


class CtcGreedy(nn.Module):
    """Best labels of a chunk, repeated ones dropped, silence counted for the end of a sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 6)

    def forward(self, x: Any, last: Any, silence: Any) -> Any:
        label = self.out(x).argmax(-1)
        before = torch.cat([last[:, None], label[:, :-1]], 1)
        kept = torch.where((label != before) & (label != 0), label, torch.full_like(label, -1))
        blank = (label == 0).long()
        after = blank.flip(1).cumprod(1).sum(1)
        silence = torch.where(after == label.size(1), silence + after, after)
        return kept, silence > 8, label[:, -1], silence


class TransducerStep(nn.Module):
    """Predictor and joiner in one: a blank leaves the predictor where it is (Graves, 2012)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6, padding_idx=0)
        self.rnn = nn.LSTM(6, 8, num_layers=2)
        self.enc, self.pred, self.out = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 7)

    def forward(self, frame: Any, token: Any, hidden: Any) -> Any:
        y, (h, c) = self.rnn(self.table(token).transpose(0, 1), hidden)
        logits = self.out(torch.tanh(self.enc(frame).unsqueeze(1) + self.pred(y).transpose(0, 1))).squeeze(1)
        best = logits.argmax(-1)
        blank = best == 0
        keep = blank[None, :, None]
        return (
            torch.log_softmax(logits, -1),
            torch.where(blank, token.squeeze(1), best).unsqueeze(1),
            (torch.where(keep, hidden[0], h), torch.where(keep, hidden[1], c)),
        )


class NormLstmCell(nn.Module):
    """A cell with layer normalization of every gate (Ba et al., 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(8, 4 * width, bias=False), nn.Linear(width, 4 * width)
        self.norms: Any = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state
        i, f, g, o = (n(p) for n, p in zip(self.norms, (self.x(x) + self.h(h)).chunk(4, -1), strict=False))
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.norms[4](c))
        return h, (h, c)


class NormLstm(nn.Module):
    """Two layers of such cells; frames in front, a list of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: Any = nn.ModuleList(NormLstmCell(8) for _ in range(2))

    def forward(self, x: Tensor, states: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        states = list(states)
        out = []
        for frame in x.unbind(0):
            for i, cell in enumerate(self.cells):
                frame, states[i] = cell(frame, states[i])
            out.append(frame)
        return torch.stack(out), states


@dataclass
class LayerCache:
    """What a layer hands on."""

    attention: Tensor
    convolution: Tensor


class CachedLayers(nn.Module):
    """Layers of attention and convolution, with a record each; queries, keys and values in one product."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.conv = nn.Linear(8, 24), nn.Conv1d(8, 8, 3, groups=8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor, cache: LayerCache) -> tuple[Tensor, LayerCache]:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).unbind(-3)
        k, v = (torch.cat([old, new], 1) for old, new in zip(cache.attention.unbind(1), (k, v), strict=True))
        y = functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        x = x + y.transpose(1, 2).flatten(2)
        joined = torch.cat([cache.convolution, x.transpose(1, 2)], -1)
        x = x + functional.silu(self.conv(joined)).transpose(1, 2)
        return x, LayerCache(torch.stack([k, v], 1)[:, :, -10:], joined[..., -2:])


class Located(nn.Module):
    """Attention by where it was before: the weights so far are a state (Chorowski et al., 2015; Tacotron 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTMCell(14, 8)
        self.query, self.key = nn.Linear(8, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.conv, self.place = nn.Conv1d(2, 3, 5, padding=2, bias=False), nn.Linear(3, 6, bias=False)
        self.score, self.out, self.stop = nn.Linear(6, 1), nn.Linear(14, 8), nn.Linear(14, 1)

    def forward(
        self, frame: Any, memory: Any, h: Any, c: Any, context: Any, weights: Any, total: Any, mask: Any = None
    ) -> tuple[Tensor, ...]:
        h, c = self.rnn(torch.cat([frame, context], -1), (h, c))
        where = self.place(self.conv(torch.stack([weights, total], 1)).transpose(1, 2))
        energy = self.score(torch.tanh(self.query(h).unsqueeze(1) + self.key(memory) + where)).squeeze(-1)
        if mask is not None:
            energy = energy.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(energy, -1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        both = torch.cat([h, context], -1)
        return self.out(both), torch.sigmoid(self.stop(both)), h, c, context, weights, total + weights


class Chunkwise(nn.Module):
    """Forward over everything, backward over the chunk (latency-controlled, Zhang et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead, self.back = nn.LSTM(8, 6, batch_first=True), nn.LSTM(8, 6, batch_first=True)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (h, c) = self.ahead(x, (h, c))
        z, _ = self.back(torch.flip(x, [1]))
        return torch.cat([y, z.flip(1)], -1)[:, :4], h, c


class Sinks(nn.Module):
    """The first frames stay for ever, the newest slide (Xiao et al., 2024); rotated where they stand in the cache."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    @staticmethod
    def _turn(x: Tensor, start: Any) -> Tensor:
        angle = (start + torch.arange(x.size(1)))[:, None, None] * torch.tensor([1.0, 0.1])
        a, b = x.view(x.size(0), x.size(1), 2, 4).chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).transpose(1, 2)

    def forward(self, x: Any, sinks: Any, recent: Any) -> Any:
        frames = torch.cat([sinks, recent, x], 1)
        n = frames.size(1)
        y = functional.scaled_dot_product_attention(
            self._turn(self.q(x), n - x.size(1)),
            self._turn(self.k(frames), 0),
            self.v(frames).view(-1, n, 2, 4).transpose(1, 2),
        )
        return self.o(y.transpose(1, 2).flatten(2)), frames[:, :4], torch.cat([recent, x], 1)[:, x.size(1) :]


class Experts(nn.Module):
    """The best two of four experts for every frame, behind a recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.route = nn.GRU(8, 8), nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 12) * 0.3), nn.Parameter(torch.randn(4, 12, 8) * 0.3)

    def forward(self, x: Any, h: Any) -> Any:
        y, h = self.rnn(x, h)
        score, chosen = torch.topk(self.route(y), 2, dim=-1)
        gate = torch.zeros_like(self.route(y)).scatter(-1, chosen, score.softmax(-1))
        each = torch.einsum("tbd,edf->tbef", y, self.up).relu()
        return torch.einsum("tbef,efd,tbe->tbd", each, self.down, gate), h


class Legendre(nn.Module):
    """A memory of Legendre polynomials (Voelker et al., 2019)."""

    a: Tensor
    b: Tensor

    def __init__(self) -> None:
        super().__init__()
        order, theta = 6, 10.0
        q = torch.arange(order, dtype=torch.float64)
        r = (2 * q + 1)[:, None] / theta
        i, j = torch.meshgrid(q, q, indexing="ij")
        a = torch.where(i < j, -1.0, (-1.0) ** (i - j + 1)) * r
        full = torch.zeros(order + 1, order + 1, dtype=torch.float64)
        full[:order, :order], full[:order, order:] = a, (-1.0) ** q[:, None] * r
        discrete = torch.linalg.matrix_exp(full)
        self.register_buffer("a", discrete[:order, :order].float())
        self.register_buffer("b", discrete[:order, order].float())
        self.u, self.h = nn.Linear(4 + 8 + 6, 1), nn.Linear(4 + 8 + 6, 8)

    def forward(self, x: Any, h: Any, m: Any) -> Any:
        for t in range(x.size(1)):
            u = self.u(torch.cat([x[:, t], h, m], 1))
            m = functional.linear(m, self.a) + u * self.b
            h = torch.tanh(self.h(torch.cat([x[:, t], h, m], 1)))
        return h, h, m


class Mega(nn.Module):
    """Exponential averages in several dimensions before gated attention with one head (Ma et al., 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.delta = nn.Parameter(torch.randn(8, 2)), nn.Parameter(torch.randn(8, 2))
        self.beta, self.eta = nn.Parameter(torch.randn(8, 2)), nn.Parameter(torch.randn(8, 2))
        self.z, self.v, self.r = nn.Linear(8, 4), nn.Linear(8, 8), nn.Linear(8, 8)
        self.gamma, self.shift = nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.zeros(2, 4))
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, x: Any, ema: Any, keys: Any, values: Any) -> Any:
        p, q = torch.sigmoid(self.alpha), 1 - torch.sigmoid(self.alpha) * torch.sigmoid(self.delta)
        smooth = []
        for t in range(x.size(1)):
            ema = p * self.beta * x[:, t, :, None] + q * ema
            smooth.append((ema * self.eta).sum(-1) / math.sqrt(2))
        s = functional.silu(torch.stack(smooth, 1))
        z = functional.silu(self.z(s))
        query, key = (z * self.gamma[i] + self.shift[i] for i in range(2))
        keys, values = torch.cat([keys, key], 1), torch.cat([values, functional.silu(self.v(x))], 1)
        n, t = keys.size(1), x.size(1)
        distance = torch.arange(n - t, n).unsqueeze(1) - torch.arange(n)
        scores = query @ keys.mT / 2 + self.bias[distance + 32]
        y = torch.softmax(scores, -1) @ values
        return x + y * torch.sigmoid(self.r(s)), ema, keys[:, -9:], values[:, -9:]


class Favor(nn.Module):
    """Attention by random features, sums kept for keys and for keys with values (Choromanski et al., 2021)."""

    features: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("features", torch.randn(4, 6))

    def _phi(self, x: Tensor) -> Tensor:
        x = x.view(*x.shape[:-1], 2, 4) / 4**0.25
        return torch.exp(x @ self.features - x.pow(2).sum(-1, keepdim=True) / 2) / math.sqrt(6)

    def forward(self, x: Any, sums: Any, norm: Any) -> Any:
        q, k, v = self._phi(self.q(x)), self._phi(self.k(x)), self.v(x).unflatten(-1, (2, 4))
        outer = sums.unsqueeze(1) + torch.einsum("bthf,bthd->bthfd", k, v).cumsum(1)
        total = norm.unsqueeze(1) + k.cumsum(1)
        y = torch.einsum("bthf,bthfd->bthd", q, outer) / (q * total).sum(-1, keepdim=True).clamp_min(1e-6)
        return y.flatten(2), outer[:, -1], total[:, -1]


FAMILIES = (
    StepFamily(
        "e_branchformer",
        EBranchformer,
        {
            "x": data("batch", 4, 8),
            "kv": state("nkv", "batch", 2, 2, "cached", 4),
            "gate": state("ng", "batch", 12, 4),
            "fused": state("nf", "batch", 16, 2),
        },
        ("y", "nkv", "ng", "nf"),
        windows={"cached": 12},
    ),
    StepFamily(
        "squeezeformer",
        Squeezeformer,
        {
            "x": data("batch", 4, 8),
            "conv": state("nc", "batch", 1, 8),
            "keys": state("nk", "batch", "cached", 8),
            "values": state("nv", "batch", "cached", 8),
        },
        ("y", "nc", "nk", "nv"),
        windows={"cached": 10},
    ),
    StepFamily(
        "shaw_one_row",
        Shaw,
        {"x": data("batch", 4, 8, original=(4, 8)), "past": state("np", "batch", "cached", 8, original=("cached", 8))},
        ("y", "np"),
        windows={"cached": 12},
    ),
    StepFamily(
        "gated_linear_attention",
        GatedLinear,
        {"x": data("batch", 3, 8), "memory": state("nm", "batch", 2, 4, 4)},
        ("y", "nm"),
    ),
    StepFamily(
        "h3",
        HThree,
        {
            "x": data("batch", 3, 8),
            "shift": state("ns", "batch", 8, 4),
            "real": state("nr", "batch", 8, 3),
            "imag": state("ni", "batch", 8, 3),
        },
        ("y", "ns", "nr", "ni"),
    ),
    StepFamily("min_gru", MinGru, {"x": data("batch", 3, 6), "h": state("nh", "batch", 1, 8)}, ("y", "nh")),
    StepFamily(
        "integrate_and_fire",
        Cif,
        {
            "x": data("batch", 4, 8),
            "context": state("nc", "batch", 2, 8),
            "total": state("nt", "batch"),
            "token": state("nk", "batch", 8),
        },
        ("tokens", "fired", "nc", "nt", "nk"),
    ),
    StepFamily(
        "ctc_greedy",
        CtcGreedy,
        {
            "x": data("batch", 4, 8),
            "last": state("nl", "batch", dtype="int64"),
            "silence": state("ns", "batch", dtype="int64"),
        },
        ("kept", "ended", "nl", "ns"),
    ),
    StepFamily(
        "transducer_step",
        TransducerStep,
        {
            "frame": data("batch", 5),
            "token": state("nt", "batch", 1, dtype="int64"),
            "hidden.0": state("nh", 2, "batch", 8),
            "hidden.1": state("nc", 2, "batch", 8),
        },
        ("scores", "nt", "nh", "nc"),
    ),
    StepFamily(
        "layer_norm_lstm",
        NormLstm,
        {
            "x": data(3, "batch", 8),
            "states.0.0": state("h0", "batch", 8),
            "states.0.1": state("c0", "batch", 8),
            "states.1.0": state("h1", "batch", 8),
            "states.1.1": state("c1", "batch", 8),
        },
        ("y", "h0", "c0", "h1", "c1"),
    ),
    StepFamily(
        "cache_in_a_dataclass",
        CachedLayers,
        {
            "x": data("batch", 4, 8),
            "cache.attention": state("na", "batch", 2, "cached", 2, 4),
            "cache.convolution": state("nc", "batch", 8, 2),
        },
        ("y", "na", "nc"),
        windows={"cached": 10},
    ),
    StepFamily(
        "location_sensitive",
        Located,
        {
            "frame": data("batch", 8),
            "memory": data("batch", 12, 6),
            "h": state("nh", "batch", 8),
            "c": state("nc", "batch", 8),
            "context": state("nx", "batch", 6),
            "weights": state("nw", "batch", 12),
            "total": state("nt", "batch", 12),
        },
        ("y", "stop", "nh", "nc", "nx", "nw", "nt"),
    ),
    StepFamily(
        "location_sensitive_memory",
        Located,
        {
            "frame": data("batch", 8),
            "memory": data("batch", "text", 6),
            "h": state("nh", "batch", 8),
            "c": state("nc", "batch", 8),
            "context": state("nx", "batch", 6),
            "weights": state("nw", "batch", "text"),
            "total": state("nt", "batch", "text"),
            "mask": data("batch", "text", dtype="bool", mask_of="text"),
        },
        ("y", "stop", "nh", "nc", "nx", "nw", "nt"),
        padded={"text": (6, 12)},
    ),
    StepFamily(
        "latency_controlled_lstm",
        Chunkwise,
        {"x": data("batch", 6, 8), "h": state("nh", 1, "batch", 6), "c": state("nc", 1, "batch", 6)},
        ("y", "nh", "nc"),
    ),
    StepFamily(
        "attention_sinks",
        Sinks,
        {"x": data("batch", 2, 8), "sinks": state("ns", "batch", 4, 8), "recent": state("nr", "batch", 8, 8)},
        ("y", "ns", "nr"),
    ),
    StepFamily("experts", Experts, {"x": data(3, "batch", 8), "h": state("nh", 1, "batch", 8)}, ("y", "nh")),
    StepFamily(
        "legendre_memory",
        Legendre,
        {"x": data("batch", 3, 4), "h": state("nh", "batch", 8), "m": state("nm", "batch", 6)},
        ("y", "nh", "nm"),
    ),
    StepFamily(
        "mega",
        Mega,
        {
            "x": data("batch", 3, 8),
            "ema": state("ne", "batch", 8, 2),
            "keys": state("nk", "batch", "cached", 4),
            "values": state("nv", "batch", "cached", 8),
        },
        ("y", "ne", "nk", "nv"),
        windows={"cached": 9},
    ),
    StepFamily(
        "random_features",
        Favor,
        {"x": data("batch", 3, 8), "sums": state("ns", "batch", 2, 6, 4), "norm": state("nn", "batch", 2, 6)},
        ("y", "ns", "nn"),
    ),
)
