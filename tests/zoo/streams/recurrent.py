"""Recurrent layers, state spaces and linear attention, a step at a time."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.attention import HEADS, WIDTH, Attention, heads
from tests.zoo.streams.family import StepFamily, data, state


class Gru(nn.Module):
    """Two layers of nn.GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(8, 12, 2, batch_first=True)
        self.out = nn.Linear(12, 5)

    def forward(self, x: Any, h: Any) -> Any:
        y, h = self.rnn(x, h)
        return (self.out(y), h)


class Lstm(nn.Module):
    """Two layers of nn.LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 12, 2, batch_first=True)
        self.out = nn.Linear(12, 5)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (h, c) = self.rnn(x, (h, c))
        return (self.out(y), h, c)


class Learnt(Gru):
    """A learnt state of every layer, and scores beside the largest so far, which is below all before the first."""

    def forward(self, x: Any, h: Any, peak: Any) -> Any:  # type: ignore[override]
        y, h = super().forward(x, h)
        peak = torch.maximum(peak, y.amax(1))
        return (y - peak[:, None], h, peak)


class LstmTuple(Lstm):
    """With its states as a pair."""

    def forward(self, x: Any, state: Any) -> Any:  # type: ignore[override]
        y, state = self.rnn(x, state)
        return (self.out(y), state)


class LstmTime(nn.Module):
    """With frames in front of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 12, 1)
        self.out = nn.Linear(12, 5)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (h, c) = self.rnn(x, (h, c))
        return (self.out(y), h, c)


class Sru(nn.Module):
    """Simple recurrent units (Lei et al., 2018), states of all layers stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.w: Any = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))
        self.v = nn.Parameter(torch.randn(2, 2, 8) * 0.3)

    def forward(self, x: Any, c: Any) -> Any:
        new = []
        for i, w in enumerate(self.w):
            z, f, r = w(x).chunk(3, -1)
            ci = c[i]
            ys = []
            for t in range(x.size(1)):
                ff = torch.sigmoid(f[:, t] + self.v[i, 0] * ci)
                rr = torch.sigmoid(r[:, t] + self.v[i, 1] * ci)
                ci = ff * ci + (1 - ff) * z[:, t]
                ys.append(rr * ci + (1 - rr) * x[:, t])
            x = torch.stack(ys, 1)
            new.append(ci)
        return (x, torch.stack(new))


class GruCellStack(nn.Module):
    """One frame at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.c: Any = nn.ModuleList(nn.GRUCell(8, 8) for _ in range(2))

    def forward(self, x: Any, h0: Any, h1: Any) -> Any:
        h0 = self.c[0](x, h0)
        h1 = self.c[1](h0, h1)
        return (h1, h0, h1)


class Mamba(nn.Module):
    """A selective state space (Gu and Dao, 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.i = nn.Linear(8, 32)
        self.conv = nn.Conv1d(16, 16, 4, groups=16)
        self.xp = nn.Linear(16, 1 + 8)
        self.dt = nn.Linear(1, 16)
        self.rates = nn.Parameter(-torch.rand(16, 4) - 0.1)
        self.passed = nn.Parameter(torch.ones(16))
        self.o = nn.Linear(16, 8)

    def forward(self, x: Any, conv: Any, ssm: Any) -> Any:
        a, z = self.i(x).chunk(2, -1)
        conv = torch.roll(conv, -1, -1)
        conv[:, :, -1] = a
        a = functional.silu((conv * self.conv.weight[:, 0]).sum(-1) + self.conv.bias)
        dt, enters, cell = torch.split(self.xp(a), [1, 4, 4], -1)
        dt = functional.softplus(self.dt(dt))
        kept = torch.exp(torch.einsum("bd,dn->bdn", dt, self.rates))
        entering = torch.einsum("bd,bn->bdn", dt, enters)
        ssm = ssm * kept + a.unsqueeze(-1) * entering
        y = torch.einsum("bdn,bn->bd", ssm, cell) + self.passed * a
        return (self.o(y * functional.silu(z)), conv, ssm)


class Rwkv(nn.Module):
    """Version 4, four states in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.k, self.v, self.r, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.mix = nn.Parameter(torch.rand(3, 8))
        self.decay = nn.Parameter(torch.rand(8))
        self.first = nn.Parameter(torch.rand(8))

    def forward(self, x: Any, state: Any) -> Any:
        prev, num, den, mx = state.unbind(-1)
        k = self.k(x * self.mix[0] + prev * (1 - self.mix[0]))
        v = self.v(x * self.mix[1] + prev * (1 - self.mix[1]))
        r = torch.sigmoid(self.r(x * self.mix[2] + prev * (1 - self.mix[2])))
        m = torch.maximum(mx, k + self.first)
        e1 = torch.exp(mx - m)
        e2 = torch.exp(k + self.first - m)
        y = (e1 * num + e2 * v) / (e1 * den + e2)
        w = -torch.exp(self.decay)
        m2 = torch.maximum(mx + w, k)
        e1 = torch.exp(mx + w - m2)
        e2 = torch.exp(k - m2)
        return (self.o(r * y), torch.stack([x, e1 * num + e2 * v, e1 * den + e2, m2], -1))


class LinAtt(nn.Module):
    """Linear attention (Katharopoulos et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any, summed: Any, z: Any) -> Any:
        q, k, v = (functional.elu(self.q(x)) + 1, functional.elu(self.k(x)) + 1, self.v(x))
        kv = torch.einsum("btd,bte->btde", k, v).cumsum(1) + summed.unsqueeze(1)
        kz = k.cumsum(1) + z.unsqueeze(1)
        return (torch.einsum("btd,btde->bte", q, kv) / (q * kz).sum(-1, keepdim=True), kv[:, -1], kz[:, -1])


class XlstmM(nn.Module):
    """The matrix memory of xLSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.g = nn.Linear(8, 2)

    def forward(self, x: Any, cell: Any, n: Any, m: Any) -> Any:
        q, k, v = (self.q(x), self.k(x) / 8**0.5, self.v(x))
        i, f = self.g(x).chunk(2, -1)
        lf = functional.logsigmoid(f)
        mn = torch.maximum(lf + m, i)
        ip, fp = (torch.exp(i - mn), torch.exp(lf + m - mn))
        cell = fp.unsqueeze(-1) * cell + ip.unsqueeze(-1) * v.unsqueeze(-1) @ k.unsqueeze(1)
        n = fp * n + ip * k
        h = (cell @ q.unsqueeze(-1)).squeeze(-1) / torch.clamp((n * q).sum(-1, keepdim=True).abs(), min=1.0)
        return (h, cell, n, mn)


class S4D(nn.Module):
    """A diagonal state space of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.rand(8, 4) * 0.5)
        self.b = nn.Parameter(torch.randn(8, 4, 2))
        self.c = nn.Parameter(torch.randn(8, 4, 2))

    def forward(self, x: Any, re: Any, im: Any) -> Any:
        al, th = (torch.exp(-self.a), self.a * 3)
        cr, ci = (al * torch.cos(th), al * torch.sin(th))
        u = x.unsqueeze(-1)
        r2 = re * cr - im * ci + u * self.b[..., 0]
        i2 = re * ci + im * cr + u * self.b[..., 1]
        return ((r2 * self.c[..., 0] - i2 * self.c[..., 1]).sum(-1), r2, i2)


class SLstm(nn.Module):
    """The scalar memory of xLSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.r = (nn.Linear(8, 32), nn.Linear(8, 32, bias=False))

    def forward(self, x: Any, h: Any, c: Any, n: Any, m: Any) -> Any:
        i, f, z, o = (self.w(x) + self.r(h)).chunk(4, -1)
        lf = functional.logsigmoid(f)
        mn = torch.maximum(lf + m, i)
        ip, fp = (torch.exp(i - mn), torch.exp(lf + m - mn))
        c = fp * c + ip * torch.tanh(z)
        n = fp * n + ip
        h = torch.sigmoid(o) * c / torch.clamp(n, min=1e-06)
        return (h, h, c, n, mn)


class RetNet(nn.Module):
    """Retention with a decay per head."""

    decay: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a = Attention()
        self.g = nn.GroupNorm(HEADS, WIDTH)
        self.register_buffer("decay", torch.tensor([0.9, 0.95]).view(1, HEADS, 1, 1))

    def forward(self, x: Any, summed: Any) -> Any:
        q, k, v = (heads(self.a.q(x)), heads(self.a.k(x)), heads(self.a.v(x)))
        summed = self.decay * summed + k.transpose(-1, -2) @ v
        return (self.a.o(self.g((q @ summed).reshape(-1, WIDTH)).unsqueeze(1)), summed)


class Griffin(nn.Module):
    """A gated linear recurrence behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv1d(8, 8, 4, groups=8)
        self.a, self.i = (nn.Linear(8, 8), nn.Linear(8, 8))
        self.layers = nn.Parameter(torch.rand(8))

    def forward(self, x: Any, conv: Any, h: Any) -> Any:
        j = torch.cat([conv, x.transpose(1, 2)], 2)
        y = self.c(j).transpose(1, 2)
        ys = []
        for t in range(x.size(1)):
            r, i = (torch.sigmoid(self.a(y[:, t])), torch.sigmoid(self.i(y[:, t])))
            la = -8 * r * functional.softplus(self.layers)
            h = torch.exp(la) * h + torch.sqrt(1 - torch.exp(2 * la)) * (i * y[:, t])
            ys.append(h)
        return (torch.stack(ys, 1), j[:, :, -3:], h)


class DeltaNet(nn.Module):
    """A gated delta rule."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.b = (nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 2))

    def forward(self, x: Any, summed: Any) -> Any:
        q, k, v = (self.q(x), functional.normalize(self.k(x), dim=-1), self.v(x))
        b, a = torch.sigmoid(self.b(x)).chunk(2, -1)
        summed = summed * a.unsqueeze(-1)
        old = (summed @ k.unsqueeze(-1)).squeeze(-1)
        summed = summed + (b * (v - old)).unsqueeze(-1) @ k.unsqueeze(1)
        return ((summed @ q.unsqueeze(-1)).squeeze(-1), summed)


class Qrnn(nn.Module):
    """Quasi-recurrent layers."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv1d(8, 24, 2)

    def forward(self, x: Any, last: Any, c: Any) -> Any:
        j = torch.cat([last, x], 1)
        z, f, o = self.c(j.transpose(1, 2)).transpose(1, 2).chunk(3, -1)
        ys = []
        for t in range(x.size(1)):
            ff = torch.sigmoid(f[:, t])
            c = ff * c + (1 - ff) * torch.tanh(z[:, t])
            ys.append(torch.sigmoid(o[:, t]) * c)
        return (torch.stack(ys, 1), j[:, -1:], c)


FAMILIES = (
    StepFamily("gru_layers_batch", Gru, {"x": data("batch", 4, 8), "h": state("hn", 2, "batch", 12)}, ("y", "hn")),
    StepFamily(
        "gru_one_row",
        Gru,
        {"x": data("batch", 4, 8, original=(1, 4, 8)), "h": state("hn", "batch", 2, 12, original=(2, 1, 12))},
        ("y", "hn"),
    ),
    StepFamily(
        "learnt_first_states",
        Learnt,
        {
            "x": data("batch", 4, 8),
            "h": state("hn", 2, "batch", 12, initial=tuple(((at / 8,) * 6 + (-at / 4,) * 6,) for at in (1, 3))),
            "peak": state("next_peak", "batch", 5, initial=-1.0e30),
        },
        ("y", "hn", "next_peak"),
    ),
    StepFamily(
        "lstm_layers_batch",
        Lstm,
        {"x": data("batch", 4, 8), "h": state("hn", 2, "batch", 12), "c": state("cn", 2, "batch", 12)},
        ("y", "hn", "cn"),
    ),
    StepFamily(
        "lstm_tuple",
        LstmTuple,
        {"x": data("batch", 4, 8), "state.0": state("hn", 2, "batch", 12), "state.1": state("cn", 2, "batch", 12)},
        ("y", "hn", "cn"),
    ),
    StepFamily(
        "lstm_time_first",
        LstmTime,
        {"x": data(4, "batch", 8), "h": state("hn", 1, "batch", 12), "c": state("cn", 1, "batch", 12)},
        ("y", "hn", "cn"),
    ),
    StepFamily("sru", Sru, {"x": data("batch", 3, 8), "c": state("cn", 2, "batch", 8)}, ("y", "cn")),
    StepFamily(
        "gru_cells",
        GruCellStack,
        {"x": data("batch", 8), "h0": state("n0", "batch", 8), "h1": state("n1", "batch", 8)},
        ("y", "n0", "n1"),
    ),
    StepFamily(
        "mamba_step",
        Mamba,
        {"x": data("batch", 8), "conv": state("convn", "batch", 16, 4), "ssm": state("ssmn", "batch", 16, 4)},
        ("y", "convn", "ssmn"),
    ),
    StepFamily("rwkv4", Rwkv, {"x": data("batch", 8), "state": state("sn", "batch", 8, 4)}, ("y", "sn")),
    StepFamily(
        "linear_attention",
        LinAtt,
        {"x": data("batch", 3, 8), "S": state("Sn", "batch", 8, 8), "z": state("zn", "batch", 8)},
        ("y", "Sn", "zn"),
    ),
    StepFamily(
        "mlstm",
        XlstmM,
        {
            "x": data("batch", 8),
            "C": state("Cn", "batch", 8, 8),
            "n": state("nn", "batch", 8),
            "m": state("mn", "batch", 1),
        },
        ("y", "Cn", "nn", "mn"),
    ),
    StepFamily(
        "s4d",
        S4D,
        {"x": data("batch", 8), "re": state("rn", "batch", 8, 4), "im": state("inn", "batch", 8, 4)},
        ("y", "rn", "inn"),
    ),
    StepFamily(
        "slstm",
        SLstm,
        {
            "x": data("batch", 8),
            "h": state("hn", "batch", 8),
            "c": state("cn", "batch", 8),
            "n": state("nn", "batch", 8),
            "m": state("mn", "batch", 8),
        },
        ("y", "hn", "cn", "nn", "mn"),
    ),
    StepFamily("retnet", RetNet, {"x": data("batch", 1, 8), "S": state("Sn", "batch", 2, 4, 4)}, ("y", "Sn")),
    StepFamily(
        "griffin_rglru",
        Griffin,
        {"x": data("batch", 3, 8), "conv": state("convn", "batch", 8, 3), "h": state("hn", "batch", 8)},
        ("y", "convn", "hn"),
    ),
    StepFamily("gated_delta_net", DeltaNet, {"x": data("batch", 8), "S": state("Sn", "batch", 4, 4)}, ("y", "Sn")),
    StepFamily(
        "qrnn",
        Qrnn,
        {"x": data("batch", 3, 8), "last": state("ln", "batch", 1, 8), "c": state("cn", "batch", 8)},
        ("y", "ln", "cn"),
    ),
)
